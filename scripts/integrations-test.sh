#!/usr/bin/env bash
# Tests the wheel together with the libraries that it works with: torch, transformers; then the evaluation programs, on tiny
# models. CUDA tests run where there is a device; the device's side also runs on the emulator. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/torch-env.sh
target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
home="$target/integrations"
venv="$home/venv"

echo "integrations: mypy --strict python/tenfold"
"$venv/bin/python" -m mypy --strict --no-error-summary --cache-dir "$home/mypy" python/tenfold

run() {
    "$venv/bin/python" -m pytest --quiet -p no:cacheprovider "$@"
}
run python/integrations "$@"
echo "integrations: the evaluation programs"
run eval/tests

# The same package with a device that is none in it, which no wheel has.
echo "integrations: the device's side again, on the emulator"
cargo build --quiet --package tenfold-python --features emulator 2>/dev/null ||
    cargo build --package tenfold-python --features emulator
rm -rf "$home/emulated"
mkdir -p "$home/emulated"
cp -r python/tenfold "$home/emulated/tenfold"
cp "$target/debug/lib_native.so" "$home/emulated/tenfold/_native.abi3.so"
device=(test_torch_blocks.py test_torch_device.py test_torch_device_layers.py test_torch_kept_device.py test_transformers_cache_device.py)
PYTHONPATH="$home/emulated" run "${device[@]/#/python/integrations/}" -k "not cuda"
