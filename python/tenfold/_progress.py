"""Telling how far long work is: a bar of tqdm, or a function of the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ._errors import ArgumentError

Tell = Callable[[int, int], object]


@contextmanager
def bar(progress: bool | Tell, text: str) -> Iterator[Tell | None]:
    """A function to call with the bytes done and the bytes in all; None where nobody wants to know."""
    if progress is False or progress is None:
        yield None
    elif callable(progress):
        yield progress
    else:
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped, unused-ignore]
        except ImportError:
            raise ArgumentError("progress=True needs tqdm: pip install 'tenfold[progress]'") from None
        with tqdm(desc=text, unit="B", unit_scale=True, unit_divisor=1024) as shown:

            def tell(done: int, total: int) -> None:
                shown.total = total
                shown.update(done - shown.n)

            yield tell
