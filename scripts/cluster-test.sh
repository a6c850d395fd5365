#!/usr/bin/env bash
# Tests tenfold.ray with Ray itself, on local clusters of two nodes. Ray is installed once, into the environment with torch and
# transformers that other tests share. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/torch-env.sh
home="$(realpath -m "${CARGO_TARGET_DIR:-target}")/integrations"
venv="$home/venv"
requirements=python/cluster/requirements.txt
log="$home/log"
. scripts/quietly.sh

# The stamp lies in the environment, so that Ray is installed again when that was made anew.
if ! cmp --silent "$requirements" "$venv/cluster-installed"; then
    echo "cluster: installing Ray into $venv (once)"
    install "$venv" --requirement "$requirements"
    cp "$requirements" "$venv/cluster-installed"
fi

"$venv/bin/python" -m pytest --quiet -p no:cacheprovider python/cluster "$@"
