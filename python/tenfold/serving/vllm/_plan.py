"""What the scheduler's side of a connector tells the worker's side to do in a step."""

from __future__ import annotations

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata


@dataclass(frozen=True)
class Page:
    """A page and the blocks of the engine that are to hold it, or that it is made of.

    Attributes:
        key: hash of the tokens up to the page's end, and of all else that vLLM tells prefixes apart by.
        position: of its first token.
        blocks: numbers of the blocks.
        first: which of the page's blocks is the first of those; the ones before it are in the cache already.
    """

    key: str
    position: int
    blocks: tuple[int, ...]
    first: int = 0


@dataclass
class Plan(KVConnectorMetadata):  # type: ignore[misc]
    """Of one step.

    Attributes:
        loads: pages of each request that waits for them.
        saves: pages whose last token this step computes.
        writes: blocks that this step computes keys and values into; listed by engines that save.
        idle: the step computes nothing, so it may wait for loads.
    """

    loads: dict[str, list[Page]] = field(default_factory=dict)
    saves: list[Page] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    idle: bool = False

    @property
    def overwritten(self) -> set[int]:
        """Blocks that hold something else after this step: what is computed, and what is loaded."""
        return {*self.writes, *(block for pages in self.loads.values() for page in pages for block in page.blocks)}
