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

echo "integrations: the device's side again, on the emulator"
emulated="$(scripts/emulated-package.sh)"
device=(test_torch_blocks.py test_torch_delta_device.py test_torch_device.py test_torch_device_calibrated.py test_torch_device_delta.py test_torch_device_layers.py test_torch_kept_device.py test_torch_transposed.py test_torch_video.py test_transformers_cache_device.py)
PYTHONPATH="$emulated" run "${device[@]/#/python/integrations/}" -k "not cuda"
PYTHONPATH="$emulated" run eval/tests/test_kv_device.py -k "not cuda"
