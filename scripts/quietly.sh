# To be sourced, after `log` has the path of a file: runs a command whose output only counts if it fails.
quietly() {
    if ! "$@" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        echo "$(basename "$0"): '$*' failed" >&2
        exit 1
    fi
}

# Installs into a virtual environment; a download that breaks off goes on where it was, and an index that does not answer is
# asked again. Arguments: the environment, then what `pip install` takes.
install() {
    local venv="$1" try
    shift
    for try in 1 2 3 4; do
        # What Python brings along cannot resume.
        if "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 10 'pip==26.3' >"$log" 2>&1 &&
            "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 10 --timeout 60 \
                --resume-retries 20 "$@" >>"$log" 2>&1; then
            return
        fi
        echo "$(basename "$0"): installing failed at attempt $try of 4: $(tail -n 1 "$log")" >&2
        sleep $((try * 15))
    done
    tail -n 40 "$log" >&2
    exit 1
}
