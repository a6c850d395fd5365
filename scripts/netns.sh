#!/usr/bin/env bash
# Two network namespaces joined by a link of a stated rate: needs root and iproute2.
#   scripts/netns.sh RATE COMMAND…    runs COMMAND with $A and $B as prefixes for the two sides, 10.77.0.1 and 10.77.0.2,
#                                     and removes the namespaces however it ends.
# Example, with `cargo build --release -p tenfold-link --example hidden_states` done:
#   scripts/netns.sh 100mbit 'h=target/release/examples/hidden_states
#     $B $h receive 10.77.0.2:9000 & sleep 1; $A $h send 10.77.0.2:9000 testdata/activations.safetensors; wait'
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,7s/^# \?//p' "$0" >&2; exit 2; }
rate=$1
shift
case $rate in
    *gbit) bits=$((${rate%gbit} * 1000000000)) ;;
    *mbit) bits=$((${rate%mbit} * 1000000)) ;;
    *kbit) bits=$((${rate%kbit} * 1000)) ;;
    *) echo "netns.sh: state the rate as 10mbit or 1gbit, not $rate" >&2 && exit 2 ;;
esac
burst=$((bits / 4000 > 3200 ? bits / 4000 : 3200))
a="tenfold-a-$$" b="tenfold-b-$$"
cleanup() {
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
}
trap cleanup EXIT
ip netns add "$a"
ip netns add "$b"
ip link add veth0 netns "$a" type veth peer name veth0 netns "$b"
ip -n "$a" addr add 10.77.0.1/24 dev veth0
ip -n "$b" addr add 10.77.0.2/24 dev veth0
for side in "$a" "$b"; do
    ip -n "$side" link set lo up
    ip -n "$side" link set veth0 up
    # A burst of 2 ms, and two packets at least: what a burst lets through at once counts as free, whatever the rate.
    # Packets wait at most 50 ms.
    ip netns exec "$side" tc qdisc add dev veth0 root tbf rate "$rate" burst "$burst" latency 50ms
done
A="ip netns exec $a" B="ip netns exec $b" bash -c "$*"
