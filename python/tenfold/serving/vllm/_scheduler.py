"""The scheduler's side: which pages of a prompt the store has, and which pages of a request are to be stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..._errors import MachineError
from ._plan import Page, Plan
from ._shape import Shape
from ._shelf import Complaints, Shelf


@dataclass
class _Tracked:
    """What is known of a request.

    Attributes:
        request: vLLM's; its block hashes grow with its tokens.
        local: tokens that the engine's own cache had at the last lookup.
        found: pages that the store had then.
        saved: pages from the first on that need no storing: they are stored, or a worker was told to.
        loading: its blocks, while pages are loaded into them.
        alone: a load of it failed, so nothing is looked up for it again.
    """

    request: Any
    local: int = 0
    found: int = 0
    saved: int = 0
    loading: Sequence[int] = ()
    alone: bool = False


class Scheduler:
    """Plans loads and saves.

    Args:
        shape: what the cache looks like.
        shelves: the store as each tensor-parallel rank has it. A page is there if all of them have it.
        loads: whether this engine takes pages out of the store.
        saves: whether it puts pages there.
        by_layer: whether requests are computed in the step that loads their pages. What is wrong with these is known when
            the step is over. vLLM offers their blocks to other requests at once, so those that would share them wait for
            the next step; blocks that were not loaded, and what was computed behind them, are no longer offered; and what a
            request computes in such a step is stored with the next one.
    """

    def __init__(
        self, shape: Shape, shelves: Sequence[Shelf], *, loads: bool, saves: bool, by_layer: bool = False
    ) -> None:
        self._shape = shape
        self._shelves = shelves
        self._loads = loads
        self._saves = saves
        self._by_layer = by_layer
        self._offered: Any = None
        # Hashes of blocks that the next step loads, and all blocks of requests for which the last step did.
        self._landing: set[bytes] = set()
        self._landed: dict[str, Sequence[int]] = {}
        self._tracked: dict[str, _Tracked] = {}
        self._planned: dict[str, list[Page]] = {}
        self._complaints = Complaints()

    def add(self, request: Any) -> None:
        self._tracked[request.request_id] = _Tracked(request)

    def remove(self, request: Any) -> None:
        self._tracked.pop(request.request_id, None)

    def bind(self, blocks: Any) -> None:
        """Takes vLLM's pool of blocks, which knows those that it offers to requests."""
        self._offered = blocks

    def lookup(self, request: Any, local: int) -> int | None:
        """Tokens behind the first ``local`` ones that can be loaded: full blocks, and never the prompt's last token.

        That is left so that the engine has something to compute the next one from. None if the request shall ask again in
        the next step.
        """
        tracked = self._tracked[request.request_id]
        if not self._landing.isdisjoint(request.block_hashes[: local // self._shape.block]):
            return None
        if not self._loads or tracked.alone:
            return 0
        found = 0
        while found < self._pages(request) and self._stored(self._key(request, found)):
            found += 1
        tracked.local, tracked.found = local, found
        most: int = (request.num_tokens - 1) // self._shape.block * self._shape.block
        return max(min(found * self._shape.page, most) - local, 0)

    def plan_load(self, request: Any, blocks: Sequence[int], tokens: int) -> None:
        """Plans the load of so many tokens; blocks are all of the request's."""
        if tokens == 0:
            return
        tracked = self._tracked[request.request_id]
        per_page, end = self._shape.blocks, (tracked.local + tokens) // self._shape.block
        pages = []
        for number in range(tracked.local // self._shape.page, -(-end // per_page)):
            first = max(tracked.local // self._shape.block, number * per_page)
            ids = tuple(blocks[first : min(end, (number + 1) * per_page)])
            pages.append(Page(self._key(request, number), number * self._shape.page, ids, first - number * per_page))
        self._planned[request.request_id] = pages
        if self._by_layer:
            self._landing.update(request.block_hashes[tracked.local // self._shape.block : end])
        tracked.loading, tracked.saved = blocks, tracked.found

    def plan(self, output: Any) -> Plan:
        """What workers do in the step that a scheduler's output describes."""
        plan = Plan(loads=self._planned, idle=not output.total_num_scheduled_tokens)
        self._planned, self._landing = {}, set()
        if self._by_layer:
            self._land(list(plan.loads))
        if self._saves:
            for name, scheduled in output.num_scheduled_tokens.items():
                (blocks,) = output.kv_connector_block_state.get_block_ids(name)
                tracked = self._tracked[name]
                if name not in self._landed:
                    plan.saves += self._to_save(tracked, scheduled, blocks)
                computed, block = tracked.request.num_computed_tokens, self._shape.block
                plan.writes += blocks[computed // block : -(-(computed + scheduled) // block)]
        return plan

    def note_loads(self, finished: set[str], failed: set[int]) -> None:
        """Notes blocks whose load failed, and loads that ended on all ranks."""
        # Ranks that are slower finish in a later step than one of them fails.
        for tracked in self._tracked.values() if failed else ():
            lost = [number for number, block in enumerate(tracked.loading) if block in failed]
            if lost:
                # vLLM computes everything from there on; then it can be stored again.
                tracked.saved = min(tracked.saved, lost[0] // self._shape.blocks)
                tracked.alone = True
        for blocks in self._landed.values():
            lost = [number for number, block in enumerate(blocks) if block in failed]
            if lost:
                # Also if the request is gone: its blocks would be found by the next one with this prefix.
                self._offered.evict_blocks(set(blocks[lost[0] :]))
        self._forget(finished)

    def clear(self) -> bool:
        """Empties the store."""
        try:
            for shelf in self._shelves:
                shelf.clear()
        except MachineError as error:
            self._complaints.say(f"the store was not emptied: {error}")
            return False
        return True

    def _land(self, requests: Sequence[str]) -> None:
        """The next step loads pages of these requests, and the last one has ended."""
        self._forget(self._landed)
        self._landed = {name: self._tracked[name].loading for name in requests}

    def _forget(self, requests: Iterable[str]) -> None:
        """Nothing is loaded into blocks of these requests any more."""
        for name in requests:
            if name in self._tracked:  # it may have been aborted
                self._tracked[name].loading = ()

    def _to_save(self, tracked: _Tracked, scheduled: int, blocks: Sequence[int]) -> list[Page]:
        per_page, request = self._shape.blocks, tracked.request
        # Tokens that are computed when the step is over, as far as it is known which they are.
        full = min((request.num_computed_tokens + scheduled) // self._shape.page, self._pages(request))
        pages = []
        for number in range(tracked.saved, full):
            ids = tuple(blocks[number * per_page : (number + 1) * per_page])
            pages.append(Page(self._key(request, number), number * self._shape.page, ids))
        tracked.saved = max(tracked.saved, full)
        return pages

    def _pages(self, request: Any) -> int:
        """Full pages of a request whose tokens are known."""
        return len(request.block_hashes) // self._shape.blocks

    def _key(self, request: Any, number: int) -> str:
        # Hashes are chained: that of a page's last block says all that comes before its end.
        hashed: bytes = request.block_hashes[(number + 1) * self._shape.blocks - 1]
        return hashed.hex()

    def _stored(self, key: str) -> bool:
        return all(shelf.contains(key) for shelf in self._shelves)
