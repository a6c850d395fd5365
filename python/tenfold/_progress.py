"""Progress of long work, shown in a tqdm bar or passed to a function of the caller."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ._errors import ArgumentError

Tell = Callable[[int, int], object]


def wanted(progress: bool | Tell | None) -> bool | Tell:
    """Whether to show a bar where that was left open: on a terminal, if tqdm is there."""
    if progress is not None:
        return progress
    return sys.stderr is not None and sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None


@contextmanager
def bar(progress: bool | Tell, text: str, unit: str = "B") -> Iterator[Tell | None]:
    """Returns a function to call with the bytes (or other units) done and the total, or None if no progress is wanted."""
    if progress is False or progress is None:
        yield None
    elif callable(progress):
        yield progress
    else:
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped, unused-ignore]
        except ImportError:
            raise ArgumentError("progress=True needs tqdm: pip install 'tenfold[progress]'") from None
        with tqdm(desc=text, unit=unit, unit_scale=unit == "B", unit_divisor=1024) as shown:

            def tell(done: int, total: int) -> None:
                shown.total = total
                shown.update(done - shown.n)

            yield tell
