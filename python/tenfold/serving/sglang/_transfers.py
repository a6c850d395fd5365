"""What SGLang's metrics of a storage backend want: pages and bandwidth of each call."""

from __future__ import annotations

import threading
from typing import Any

# Calls that are kept where nobody asks.
_MOST = 1000


class Transfers:
    """Calls since the last question.

    Args:
        page_bytes: of a page that is not compressed.
    """

    def __init__(self, page_bytes: int) -> None:
        self._page_bytes = page_bytes
        self._lock = threading.Lock()
        self._calls: dict[str, list[tuple[int, float]]] = {"backup": [], "prefetch": []}

    def note(self, kind: str, pages: int, seconds: float) -> None:
        """Notes a call of a kind, ``"backup"`` or ``"prefetch"``, that moved pages."""
        with self._lock:
            if pages and seconds > 0 and len(self._calls[kind]) < _MOST:
                self._calls[kind].append((pages, seconds))

    def add_to(self, metrics: Any) -> None:
        """Moves what is known into SGLang's ``StorageMetrics``; bandwidth in gibibytes of raw pages a second, as in other backends."""
        with self._lock:
            taken, self._calls = self._calls, {kind: [] for kind in self._calls}
        for kind, calls in taken.items():
            for pages, seconds in calls:
                getattr(metrics, f"{kind}_pgs").append(pages)
                getattr(metrics, f"{kind}_bandwidth").append(pages * self._page_bytes / seconds / (1 << 30))
