#!/usr/bin/env bash
# Builds the Python wheel, installs it into a virtual environment under the target folder, checks its types and runs its
# tests. Arguments go to pytest. The wheel is built as the tests of the workspace are, so that it shares what they have
# compiled; PROFILE=release builds what is shipped, which takes minutes more. WHEEL_ONLY=1 runs no tests.
set -euo pipefail
cd "$(dirname "$0")/.."

target="${CARGO_TARGET_DIR:-target}/python"
profile="${PROFILE:-dev}"
requirements=python/requirements-test.txt
venv="$target/venv"
mkdir -p "$target"
log="$target/log"
. scripts/quietly.sh

# Stamps hold what a step was made from, so a step is done again when that has changed.
if ! cmp --silent "$requirements" "$target/installed"; then
    echo "python: installing $requirements into $venv"
    quietly python3 -m venv --clear "$venv"
    install "$venv" --requirement "$requirements"
    cp "$requirements" "$target/installed"
    rm -f "$target/built"
fi

inputs=(Cargo.toml Cargo.lock pyproject.toml README.md crates python/tenfold)
state="$profile $(git ls-files -z --cached --others --exclude-standard -- "${inputs[@]}" |
    sort -z | xargs -0 sh -c 'for f; do [ -f "$f" ] && sha256sum "$f"; done' sh | sha256sum)"
if [ "$(cat "$target/built" 2>/dev/null)" != "$state" ]; then
    echo "python: building the wheel ($profile)"
    rm -rf "$target/wheels"
    pack=()
    if [ "$profile" = release ]; then
        pack=(--compression-level 9)
        # LLD, which Rust has linked with there since 1.90, makes one of functions whose code is the same.
        rust="$(rustc -vV)"
        case "$rust" in
            *"release: 1.8"*) ;;
            *"host: x86_64-unknown-linux-gnu"*) pack+=(-- -C link-arg=-Wl,--icf=all) ;;
        esac
    fi
    quietly "$venv/bin/maturin" build --profile "$profile" --interpreter "$venv/bin/python" --out "$target/wheels" "${pack[@]}"
    quietly "$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$target"/wheels/*.whl
    size=$(stat -c %s "$target"/wheels/*.whl)
    echo "python: $(basename "$target"/wheels/*.whl), $((size / 1024)) KiB"
    # What is shipped takes 10 MB at most; a build for tests is neither stripped nor optimised as a whole.
    most=10000000
    [ "$profile" = release ] || most=14000000
    if [ "$size" -gt "$most" ]; then
        echo "python: the wheel is larger than $((most / 1000000)) MB" >&2
        exit 1
    fi
    echo "$state" >"$target/built"
fi

[ -z "${WHEEL_ONLY:-}" ] || exit 0
# Integrations need libraries that are not here; scripts of their own check those.
quietly "$venv/bin/python" -m mypy --strict --follow-imports silent --cache-dir "$target/mypy" python/tenfold/*.py
"$venv/bin/python" -m pytest --quiet -p no:cacheprovider "$@"
