#!/usr/bin/env bash
# Puts the Python package with an emulated CUDA device in it, which no wheel has, into integrations/emulated under the target folder, and
# prints where that is. Beside its native module lies a library that stands in for the driver's of the video engines; it codes with the
# system's FFmpeg, or where there is none AV1 alone.
set -euo pipefail
cd "$(dirname "$0")/.."

target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
package="$target/integrations/emulated"
cargo build --quiet --package tenfold-python --features emulator 2>/dev/null ||
    cargo build --package tenfold-python --features emulator >&2
# A build of its own: what it codes with is no part of the package.
codecs=av1
if pkg-config --exists libavcodec libavutil 2>/dev/null; then codecs=video; fi
cargo build --quiet --package tenfold-nvcodec-standin --features "$codecs" >&2
rm -rf "$package"
mkdir -p "$package"
cp -r python/tenfold "$package/tenfold"
cp "$target/debug/lib_native.so" "$package/tenfold/_native.abi3.so"
cp "$target/debug/libtenfold_nvcodec_standin.so" "$package/tenfold/"
echo "$package"
