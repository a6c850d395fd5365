#!/usr/bin/env bash
# Puts the Python package with an emulated CUDA device in it, which no wheel has, into integrations/emulated under the target folder, and
# prints where that is.
set -euo pipefail
cd "$(dirname "$0")/.."

target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
package="$target/integrations/emulated"
cargo build --quiet --package tenfold-python --features emulator 2>/dev/null ||
    cargo build --package tenfold-python --features emulator >&2
rm -rf "$package"
mkdir -p "$package"
cp -r python/tenfold "$package/tenfold"
cp "$target/debug/lib_native.so" "$package/tenfold/_native.abi3.so"
echo "$package"
