"""Progress of long work, shown in a tqdm bar or passed to a function of the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ._errors import ArgumentError

Tell = Callable[[int, int], object]


@contextmanager
def bar(progress: bool | Tell, text: str) -> Iterator[Tell | None]:
    """Returns a function to call with the bytes done and the total, or None if no progress is wanted."""
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
