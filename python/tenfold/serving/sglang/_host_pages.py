"""Pages of SGLang's host pools as keys and values: for each layer tokens × columns, whatever the pool's layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.mem_cache.pool_host.mha import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    AsymmetricMHATokenToKVPoolHost,
    MHATokenToKVPoolHost,
)
from sglang.srt.mem_cache.pool_host.mla import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    MLATokenToKVPoolHost,
)

from ..._errors import ArgumentError, UnsupportedError
from .codec import PageShape

Views = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class _Place:
    """Where a page lies in a buffer."""

    # The buffer's dimension that pages, or else slots of tokens, are counted along.
    axis: int
    paged: bool
    # Of the page's first dimensions, so that layers and tokens lead, behind keys-or-values where one buffer has both.
    order: tuple[int, ...]

    def page(self, buffer: torch.Tensor, index: int, tokens: int) -> torch.Tensor:
        if self.paged:
            return buffer.select(self.axis, index // tokens)
        return buffer.narrow(self.axis, index, tokens)

    def arrange(self, page: torch.Tensor) -> torch.Tensor:
        return page.permute(*self.order, *range(len(self.order), page.dim()))


# Keys and values in one buffer.
_BOTH = {
    "layer_first": _Place(2, False, (0, 1, 2)),
    "page_first": _Place(1, False, (0, 2, 1)),
    "page_first_direct": _Place(1, True, (0, 1, 2)),
    "page_head": _Place(1, True, (0, 3, 2, 1)),
    "page_unified": _Place(0, True, (2, 1, 3, 0)),
}
# Rows of one kind in a buffer.
_ALONE = {
    "layer_first": _Place(1, False, (0, 1)),
    "page_first": _Place(0, False, (1, 0)),
    "page_first_direct": _Place(0, True, (0, 1)),
    "page_unified": _Place(0, True, (0, 1)),
}
_KINDS: dict[type, str] = {
    MHATokenToKVPoolHost: "both",
    AsymmetricMHATokenToKVPoolHost: "two",
    MLATokenToKVPoolHost: "latent",
}


class HostPages:
    """Reads and writes pages of one host pool.

    A latent row (MLA) has no keys and values: what positions turn, at its end, is taken for keys, the rest for values.

    Args:
        pool: a host pool for MHA or MLA.
        dtype: what its bytes are, where it keeps bytes (float8 caches).
    """

    def __init__(self, pool: Any, dtype: torch.dtype | None = None) -> None:
        kind = _KINDS.get(type(pool))
        if kind is None:
            known = ", ".join(cls.__name__ for cls in _KINDS)
            raise UnsupportedError(f"the tenfold backend stores pages of {known}, not of {type(pool).__name__}")
        places = _BOTH if kind == "both" else _ALONE
        if pool.layout not in places or pool.kv_buffer is None:
            raise UnsupportedError(f"the tenfold backend cannot read {type(pool).__name__} with layout {pool.layout}")
        _check_rows(pool)
        self._pool = pool
        self._kind = kind
        self._place = places[pool.layout]
        if kind == "latent":
            columns = (pool.qk_rope_head_dim, pool.kv_lora_rank)
            if pool.kv_cache_dim != sum(columns) or pool.dcp_size > 1:
                raise UnsupportedError("the tenfold backend stores whole latent rows: none packed with scales, no DCP")
        else:
            columns = (pool.head_num * pool.head_dim, pool.head_num * pool.v_head_dim)
        self._shape = PageShape(pool.layer_num, pool.page_size, *columns, _dtype(pool.dtype, dtype))

    @property
    def shape(self) -> PageShape:
        """What a page holds: the same for all layouts."""
        return self._shape

    @property
    def replicated(self) -> bool:
        """Whether all tensor-parallel ranks hold the same."""
        return self._kind == "latent"

    def at(self, index: int) -> Views:
        """Keys and values of the page that starts at a slot, in the pool's memory: layers × tokens × whatever."""
        buffers = self._pool.kv_buffer
        parts = buffers if self._kind == "two" else (buffers,)
        return self._views([self._place.page(part, index, self._shape.tokens) for part in parts])

    def of_flat(self, flat: torch.Tensor) -> Views:
        """Likewise of a page as the pool's ``get_data_page`` gives it."""
        if self._kind == "two":
            raise UnsupportedError("this pool has no flat pages; state interface_v1 in the extra configuration")
        like = self._place.page(self._pool.kv_buffer, 0, self._shape.tokens)
        if flat.dtype != like.dtype or flat.numel() != like.numel() or not flat.is_contiguous():
            raise ArgumentError(f"a page has {like.numel()} values of {like.dtype}, not {flat.numel()} of {flat.dtype}")
        return self._views([flat.view(like.shape)])

    def read(self, views: Views) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """For each layer tokens × columns; copied where the layout does not have them so."""
        keys, values = ([self._rows(layer) for layer in view] for view in views)
        return keys, values

    def write(self, views: Views, decoded: Views) -> None:
        """Copies decoded keys and values, layers × tokens × columns, to where they belong."""
        for view, rows in zip(views, decoded, strict=True):
            view.copy_(rows.view(view.dtype).view(view.shape))

    def _views(self, pages: Sequence[torch.Tensor]) -> Views:
        arranged = [self._place.arrange(page) for page in pages]
        if self._kind == "two":
            return arranged[0], arranged[1]
        if self._kind == "both":
            return arranged[0][0], arranged[0][1]
        return arranged[0][..., self._pool.kv_lora_rank :], arranged[0][..., : self._pool.kv_lora_rank]

    def _rows(self, layer: torch.Tensor) -> torch.Tensor:
        return layer.reshape(self._shape.tokens, -1).contiguous().view(self._shape.dtype)


def _check_rows(pool: Any) -> None:
    """Bytes of a slot must be those of a token, or positions and exact tokens would be of others."""
    for info in getattr(pool, "_buffer_infos", ()):
        layout = info.buffers.layout.value
        if layout not in ("nhd", "paged_nhd"):
            raise UnsupportedError(f"the tenfold backend needs slots of whole tokens (nhd), not {layout}")


def _dtype(stored: torch.dtype, stated: torch.dtype | None) -> torch.dtype:
    if stored != torch.uint8:
        if stated not in (None, stored):
            raise ArgumentError(f"option dtype says {stated}, the pool keeps {stored}; leave it out")
        return stored
    if stated is None or stated.itemsize != 1:
        raise ArgumentError('the pool keeps bytes; say what they are: "dtype": "float8_e4m3fn" or "float8_e5m2"')
    return stated
