#!/usr/bin/env bash
# Runs an evaluation program: `scripts/eval.sh perplexity smollm2`, `encoder`, `features`, `models`, `kv`, `training`, `pipeline`, `exchange`,
# `split`, `serdes`, `kv_domains`, `weights`, `weights_text`, `always_on`; without arguments the first four: the others want a text, a cache or hours. The
# first run installs torch and transformers, which takes several GB, and fetches models. x265 takes part if TENFOLD_VIDEO names a tenfold
# command with video codecs.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/torch-env.sh
python="$(realpath -m "${CARGO_TARGET_DIR:-target}")/integrations/venv/bin/python"

program() {
    name="$1"
    shift
    "$python" "eval/$name.py" "$@"
}

if [ $# -gt 0 ]; then
    program "$@"
else
    program models
    program perplexity stories15M
    program perplexity smollm2
    program encoder
    program features
fi
