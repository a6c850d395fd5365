#!/usr/bin/env bash
# Runs an evaluation program: `scripts/eval.sh perplexity smollm2`, `encoder`, `features`, `models`; without arguments all
# of them; `test` runs the programs' tests, which need no models. The first run installs torch and transformers into an environment under the target folder, which takes several
# GB, and fetches models. x265 takes part if TENFOLD_VIDEO names a tenfold command with video codecs.
set -euo pipefail
cd "$(dirname "$0")/.."

target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
home="$target/eval"
venv="$home/venv"
mkdir -p "$home"

# The stamp holds what was installed, so it is done again when that has changed.
if ! cmp --silent eval/requirements.txt "$home/installed"; then
    echo "eval: installing torch and transformers into $venv (several GB, once)"
    python3 -m venv --clear "$venv"
    DISABLE_CUDA=1 "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement eval/requirements.txt
    cp eval/requirements.txt "$home/installed"
fi

# The wheel; its tests are only listed.
scripts/python-test.sh --collect-only >/dev/null
"$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$target"/python/wheels/*.whl

program() {
    name="$1"
    shift
    "$venv/bin/python" "eval/$name.py" "$@"
}

if [ "${1:-}" = test ]; then
    "$venv/bin/python" -m pytest --quiet -p no:cacheprovider eval/tests
elif [ $# -gt 0 ]; then
    program "$@"
else
    program models
    program perplexity stories15M
    program perplexity smollm2
    program encoder
    program features
fi
