"""The worker's side: what moves pages from the store into blocks, and from blocks into the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .._pages import KvPages
from .._reloads import Trace
from .._stats import Counts
from ._blocks import Blocks
from ._layer_loads import LayerLoads
from ._loads import Loads
from ._options import Options
from ._plan import Plan
from ._saves import Saves
from ._shape import Shape
from ._shelf import Shelf, logger
from ._stats import Stats

# A step with nothing to compute waits this long for loads, in seconds.
_NAP = 0.01


class Worker:
    """Carries plans out.

    Args:
        shape: what the cache looks like.
        options: the connector's settings.
        pages: makes and reads pages.
        shelf: this rank's part of the store.
        rank: the tensor-parallel rank; the first counts tokens.
    """

    def __init__(self, shape: Shape, options: Options, pages: KvPages, shelf: Shelf, rank: int) -> None:
        self._shape = shape
        self._counts = Counts()
        tokens = int(rank == 0)
        loads = LayerLoads if options.by_layer else Loads
        trace = Trace(options.trace, f"rank-{rank}" if shape.ranks > 1 else "", logger)
        self._loads = loads(shape, pages, shelf, self._counts, threads=options.threads, tokens=tokens, trace=trace)
        self._saves = Saves(shape, options, pages, shelf, self._counts, tokens=tokens)
        self._failed: set[int] = set()

    def register(self, caches: Mapping[str, torch.Tensor], layers: Mapping[str, Any]) -> None:
        """Takes vLLM's cache."""
        cache = Blocks(self._shape, caches, layers)
        self._loads.register(cache)
        self._saves.register(cache)
        if cache.device.type != "cpu":
            logger.warning(
                "TenfoldConnector has been tested with engines on CPUs, and not yet on %s", cache.device.type
            )

    def before_writes(self, plan: Plan) -> None:
        """Comes first in a step: blocks that it is to write to must not be needed any more."""
        self._saves.before_writes(plan.overwritten)

    def load(self, plan: Plan, *, by_layer: bool = False) -> None:
        """Starts all loads of a plan.

        Args:
            plan: of the step.
            by_layer: whether :meth:`wait_for_layer` is called for all layers of the step.
        """
        self._loads.start(plan.loads, by_layer=by_layer)

    def wait_for_layer(self, name: str) -> None:
        """A layer of the step is about to attend."""
        self._loads.wait_for_layer(name)

    def save(self, plan: Plan) -> None:
        """Starts all saves of a plan."""
        self._saves.start(plan.saves)

    def take_finished(self, plan: Plan) -> set[str]:
        """Requests all of whose loads have ended, one way or the other."""
        if plan.idle and self._loads:
            self._loads.wait(_NAP)
        ended = self._loads.take()
        self._failed = self._failed.union(*ended.values())
        return set(ended)

    def take_failed(self) -> set[int]:
        """Blocks that nothing was loaded into: of requests whose loads have ended, and of those that this step computes."""
        failed, self._failed = self._failed, set()
        return failed | self._loads.take_lost()

    def stats(self) -> Stats | None:
        """Counts since the last call."""
        taken = self._counts.take()
        return Stats(data=taken) if taken else None

    def shutdown(self) -> None:
        """Ends the threads. What waits to be stored gets a few seconds."""
        self._loads.shutdown()
        self._saves.shutdown()
