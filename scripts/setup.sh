#!/usr/bin/env bash
# Installs what the tests need beyond Rust, Python 3 and make: the libraries behind the feature `video`, and a browser
# that opens the page of `tenfold-lab race`. On Debian and its kin, as root; elsewhere it says what to install.
set -euo pipefail

missing=()
pkg-config --exists libavcodec libavutil 2>/dev/null || missing+=(pkg-config libavcodec-dev libavutil-dev)
# The bindings to libavcodec are made from its headers, by libclang; libclang-cpp, which other packages bring, is not it.
compgen -G '/usr/lib/llvm-*/lib/libclang.so*' >/dev/null || compgen -G '/usr/lib/llvm-*/lib/libclang-[0-9]*.so*' >/dev/null ||
    missing+=(clang libclang-dev)
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null ||
    missing+=(chromium)
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing ${missing[*]}"
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "setup: apt-get failed" >&2
        exit 1
    fi
else
    echo "setup: please install: ${missing[*]} (Debian's names)" >&2
fi
