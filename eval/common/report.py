"""Reports: raw JSON that a later run goes on with, tables, and where the figures came from."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("tenfold", "numpy", "torch", "transformers", "hqq")


class Report:
    """Rows of one measurement, kept in a file after each row, so that an interrupted run goes on where it was."""

    def __init__(self, path: Path, about: str, *, fresh: bool = False) -> None:
        """Opens a report, or begins one. `about` says what all rows have in common; rows of something else are an error."""
        self.path, self.about = path, about
        old = {} if fresh or not path.exists() else json.loads(path.read_text(encoding="utf-8"))
        if old.get("about", about) != about:
            raise SystemExit(f"{path} is about something else ({old['about']}); take --fresh or another --out")
        self.rows: list[Row] = old.get("rows", [])
        self.notes: list[str] = []
        self._runs: list[Row] = old.get("runs", [])
        self._runs.append(provenance())

    def measured(self, **key: Any) -> Row | None:
        """The row with these fields, if it was measured before."""
        return next((row for row in self.rows if all(row.get(k) == v for k, v in key.items())), None)

    def measure(self, key: Row, measure: Callable[[], Row]) -> Row:
        """The row with these fields, measured now unless it was before."""
        row = self.measured(**key)
        if row is None:
            row = key | measure() | {"run": len(self._runs) - 1}
            self.rows.append(row)
            self.write()
        return row

    def write(self) -> None:
        """Writes the file; it is whole at any time."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        used = {row["run"] for row in self.rows}
        runs = [run for index, run in enumerate(self._runs) if index in used or index == len(self._runs) - 1]
        if len(runs) != len(self._runs):
            renumbered = {old: new for new, old in enumerate(sorted(used | {len(self._runs) - 1}))}
            for row in self.rows:
                row["run"] = renumbered[row["run"]]
            self._runs = runs
        new = self.path.with_suffix(".new")
        content = {"about": self.about, "runs": self._runs, "notes": self.notes, "rows": self.rows}
        new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        new.replace(self.path)


def provenance() -> Row:
    """Command, machine, commit and versions of this run."""
    return {
        "command": " ".join(["python", *sys.argv]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": _git("rev-parse", "HEAD") + ("-dirty" if _git("status", "--porcelain", "-uno") else ""),
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
    }


def _git(*args: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        module = sys.modules.get(name)
        return getattr(module, "__version__", None)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in markdown whose columns line up."""
    cells = [list(header), *map(list, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def number(value: float | None) -> str:
    """A figure for people: three to four digits, a dash for none."""
    if value is None:
        return "–"
    return f"{value:.2f}" if 1 <= abs(value) < 1000 else f"{value:.3g}"
