#!/usr/bin/env bash
# Compresses real tensors, looks inside, measures the error and unpacks them again.
set -euo pipefail
cd "$(dirname "$0")/.."

tenfold="${CARGO_TARGET_DIR:-target}/release/tenfold"
out=target/demo
rm -rf "$out"
mkdir -p "$out"

bold='' plain=''
if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
run() {
    printf '$ tenfold %s\n' "$*"
    "$tenfold" "$@"
}

declare -A goal=([weights]="--bits 3 --effort best" [kv]="--bits 3" [activations]="--bits 3" [gradients]="--bits 2")

for name in weights kv activations gradients; do
    input=testdata/$name.safetensors
    say "$name: compress with '${goal[$name]}'"
    # shellcheck disable=SC2086 # options are several words
    run compress "$input" -o "$out/$name.tenfold.safetensors" ${goal[$name]}
    say "$name: what is inside, read from the headers alone"
    run inspect "$out/$name.tenfold.safetensors"
    say "$name: error against the original"
    run compare "$input" "$out/$name.tenfold.safetensors"
    say "$name: back to plain safetensors"
    run decompress "$out/$name.tenfold.safetensors" -o "$out/$name.safetensors"
done

say "lossless: every bit comes back"
run compress testdata/kv.safetensors -o "$out/kv.lossless.safetensors" --lossless
run decompress "$out/kv.lossless.safetensors" -o "$out/kv.again.safetensors"
run compare testdata/kv.safetensors "$out/kv.again.safetensors"

say "The files are in $out:"
ls -l "$out" | awk 'NR > 1 { printf "%10d  %s\n", $5, $NF }'
