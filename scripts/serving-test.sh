#!/usr/bin/env bash
# Tests the plug-ins of serving engines with the engines themselves: each in a folder of its own beside torch, since their pins
# exclude each other. Arguments are names of engines; all of them without any.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/torch-env.sh
target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
venv="$target/integrations/venv"
home="$target/serving"
mkdir -p "$home"
log="$home/log"
. scripts/quietly.sh

emulated="$(scripts/emulated-package.sh)"
engines=("$@")
if [ ${#engines[@]} -eq 0 ]; then engines=(lmcache sglang vllm); fi
for engine in "${engines[@]}"; do
    requirements="python/serving/requirements-$engine.txt"
    if ! cmp --silent "$requirements" "$home/$engine.installed"; then
        echo "serving: installing $engine into $home/$engine (once)"
        rm -rf "${home:?}/$engine"
        # Without what they depend on: that is another torch, CUDA's packages, web servers.
        install "$venv" --no-deps --no-compile --target "$home/$engine" --requirement "$requirements"
        cp "$requirements" "$home/$engine.installed"
    fi
    echo "serving: $engine"
    PYTHONPATH="$home/$engine" "$venv/bin/python" -m pytest --quiet -p no:cacheprovider python/serving/test_"$engine"*.py
    echo "serving: $engine, the device's side again, on the emulator"
    PYTHONPATH="$emulated:$home/$engine" "$venv/bin/python" -m pytest --quiet -p no:cacheprovider -k "not cuda" \
        python/serving/test_"$engine"_device*.py
done
