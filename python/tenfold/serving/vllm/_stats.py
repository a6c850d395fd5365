"""What a connector did, counted: for vLLM's log and for Prometheus."""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats
from vllm.v1.metrics.utils import create_metric_per_engine

from .. import _stats as _shared

# What all plug-ins count, and what only this one does. Tensor-parallel ranks have pages of their own, which add up; tokens
# are counted once.
COUNTERS = _shared.COUNTERS | _shared.RELOADS | {
    "tokens_loaded": "Tokens whose keys and values came out of the store.",
    "tokens_saved": "Tokens whose keys and values were stored.",
    "pages_lost": "Pages that were found but could not be read; their tokens were computed again.",
    "pages_failed": "Pages that could not be stored.",
    "pages_dropped": "Pages that were not stored because too many were waiting.",
    "pages_by_device": "Pages that the device encoded or decoded; the host did the others.",
    "load_seconds": "Seconds spent reading and decoding, over all threads.",
    "save_seconds": "Seconds spent encoding and storing, over all threads.",
}


class Stats(KVConnectorStats):  # type: ignore[misc]
    """Counts of an interval; ``data`` has those that are not 0."""

    data: dict[str, Any]

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> Stats:
        """Counts of two workers, or of two intervals.

        >>> Stats(data={"pages_saved": 1}).aggregate(Stats(data={"pages_saved": 2, "pages_lost": 1})).data
        {'pages_saved': 3, 'pages_lost': 1}
        """
        return Stats(data=_shared.add(self.data, other.data))

    def reduce(self) -> dict[str, int | float]:
        """For the log: what was counted, how much smaller pages are than what they were made of, and below which bandwidth
        that pays."""
        return {name: round(value, 3) for name, value in self.data.items()} | _shared.derived(self.data)

    def is_empty(self) -> bool:
        return not self.data


class Metrics(KVConnectorPromMetrics):  # type: ignore[misc]
    """The counters ``vllm:tenfold_…`` of Prometheus."""

    def __init__(self, vllm_config: Any, types: Any, labels: list[str], values: dict[int, list[object]]) -> None:
        super().__init__(vllm_config, types, labels, values)
        self._counters = {}
        for name, about in COUNTERS.items():
            counter = self._counter_cls(name=f"vllm:tenfold_{name}", documentation=about, labelnames=labels)
            self._counters[name] = create_metric_per_engine(counter, values)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, value in transfer_stats_data.items():
            self._counters[name][engine_idx].inc(value)


def metrics(vllm_config: Any, types: dict[Any, Any], labels: list[str], values: dict[int, list[object]]) -> Metrics:
    """Registers the counters; vLLM says of which class."""
    assert Counter in types, "vLLM hands over a class for counters"
    return Metrics(vllm_config, types, labels, values)
