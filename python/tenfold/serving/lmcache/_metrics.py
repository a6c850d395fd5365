"""Counts of all serdes of a process, where LMCache's own metrics go: OpenTelemetry's meters."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from opentelemetry import metrics  # type: ignore[import-not-found,import-untyped,unused-ignore]

from .._stats import COUNTERS, Counts, add, derived

_GAUGES = {
    "ratio": "Bytes of keys and values over those of the records that were stored.",
    "save_pays_below": "Bandwidth of a link in bytes a second below which compressing chunks saves time.",
    "load_pays_below": "Bandwidth of a link in bytes a second below which loading compressed chunks saves time.",
}
_published: weakref.WeakSet[Counts] = weakref.WeakSet()


def publish(counts: Counts) -> None:
    """Adds counts to the metrics of this process."""
    _published.add(counts)
    _instruments()


def totals() -> dict[str, int | float]:
    """All counts together."""
    found: dict[str, int | float] = {}
    for counts in list(_published):
        every = counts.totals()
        found = add(found, {name: every.get(name, 0) for name in COUNTERS})
    return found | derived(found)


@cache
def _instruments() -> list[Any]:
    """Made once: a meter has one instrument of a name."""
    meter = metrics.get_meter("tenfold")
    made = [
        meter.create_observable_counter(f"tenfold.{name}", [_observe(name)], description=about) for name, about in COUNTERS.items()
    ]
    return made + [
        meter.create_observable_gauge(f"tenfold.{name}", [_observe(name)], description=about) for name, about in _GAUGES.items()
    ]


def _observe(name: str) -> Callable[[Any], Iterable[Any]]:
    def observe(options: Any) -> Iterable[Any]:
        found = totals()
        return [metrics.Observation(found[name])] if name in found else []

    return observe
