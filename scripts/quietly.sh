# To be sourced, after `log` has the path of a file: runs a command whose output only counts if it fails.
quietly() {
    if ! "$@" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        echo "$(basename "$0"): '$*' failed" >&2
        exit 1
    fi
}
