#!/usr/bin/env bash
# Makes the environment that integrations and evaluation programs share: torch, transformers and their like, installed once
# into integrations/venv under the target folder, and the wheel of this repository as it is now.
set -euo pipefail
cd "$(dirname "$0")/.."

target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
home="$target/integrations"
venv="$home/venv"
requirements=(python/integrations/requirements.txt eval/requirements.txt)
mkdir -p "$home"
log="$home/log"
. scripts/quietly.sh

# The stamp holds what was installed, so it is done again when that has changed.
if ! cat "${requirements[@]}" | cmp --silent - "$home/installed"; then
    echo "installing torch and transformers into $venv (several GB, once)"
    quietly python3 -m venv --clear "$venv"
    # HQQ would compile kernels otherwise.
    DISABLE_CUDA=1 install "$venv" "${requirements[@]/#/--requirement=}"
    cat "${requirements[@]}" >"$home/installed"
fi

WHEEL_ONLY=1 scripts/python-test.sh
quietly "$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$target"/python/wheels/*.whl
