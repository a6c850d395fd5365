"""What every report says of itself: the command, the commit, the machine."""

from __future__ import annotations

import os
import pathlib
import platform
import subprocess
import sys
from datetime import datetime, timezone
from types import ModuleType
from typing import Any

import tenfold


def about(bench: str, *libraries: ModuleType) -> dict[str, Any]:
    """Returns the head of a report.

    Args:
        bench: the name of the benchmark.
        libraries: modules whose versions matter.
    """
    machine: dict[str, Any] = {"system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count()}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        machine["device"] = torch.cuda.get_device_name()
    return {
        "bench": bench,
        "command": "python " + " ".join(sys.argv),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit(),
        "version": tenfold.__version__,
        **{library.__name__: library.__version__ for library in libraries},
        "machine": machine,
    }


def commit() -> str | None:
    """The commit that is checked out, if this is a checkout."""
    here = pathlib.Path(__file__).parent
    said = subprocess.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return said.stdout.strip() or None
