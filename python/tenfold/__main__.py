"""The command ``tenfold``: ``python -m tenfold``, or the script of that name."""

import signal
import sys

from . import _native


def main() -> int:
    """Runs the command with the arguments of the process; returns its exit code."""
    # Python would hold an interrupt back until the command ends. Ending it at once is safe: outputs appear only when
    # complete.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.main(["tenfold", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
