#!/usr/bin/env bash
# Tests the wheel together with the libraries that it works with: torch, transformers. They are installed once, into an
# environment under the target folder. CUDA tests run where there is a device; the device's side also runs on the emulator.
# Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
home="$target/integrations"
venv="$home/venv"
requirements=python/integrations/requirements.txt
mkdir -p "$home"
log="$home/log"

quietly() {
    if ! "$@" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        echo "integrations: '$*' failed" >&2
        exit 1
    fi
}

# The stamp holds what was installed, so it is done again when that has changed.
if ! cmp --silent "$requirements" "$home/installed"; then
    echo "integrations: installing torch and transformers into $venv (several GB, once)"
    quietly python3 -m venv --clear "$venv"
    quietly "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements"
    cp "$requirements" "$home/installed"
fi

WHEEL_ONLY=1 scripts/python-test.sh
quietly "$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$target"/python/wheels/*.whl

echo "integrations: mypy --strict python/tenfold"
quietly "$venv/bin/python" -m mypy --strict --cache-dir "$home/mypy" python/tenfold

run() {
    "$venv/bin/python" -m pytest --quiet -p no:cacheprovider "$@"
}
run python/integrations "$@"

# The same package with a device that is none in it, which no wheel has.
echo "integrations: the device's side again, on the emulator"
quietly cargo build --quiet --package tenfold-python --features emulator
rm -rf "$home/emulated"
mkdir -p "$home/emulated"
cp -r python/tenfold "$home/emulated/tenfold"
cp "$target/debug/lib_native.so" "$home/emulated/tenfold/_native.abi3.so"
PYTHONPATH="$home/emulated" run python/integrations/test_torch_device.py -k "not cuda"
