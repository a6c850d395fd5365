"""Pages as a connector's settings want them."""

from __future__ import annotations

from typing import Any

from .._pages import KvPages
from ._options import Options
from ._shape import Shape


def pages_of(vllm_config: Any, shape: Shape, options: Options) -> KvPages:
    """Makes and reads pages, on one thread: a connector has several at work at a time."""
    return KvPages(
        len(shape.layers),
        bits=options.bits,
        max_bytes=options.max_bytes,
        lossless=options.lossless,
        bases=options.bases,
        rope=None if options.bases is not None else _rope(vllm_config.model_config, options),
        exact=options.exact,
        effort=options.effort,
        threads=1,
    )


def _rope(model: Any, options: Options) -> dict[str, Any] | None:
    if not isinstance(options.rope, str):
        return options.rope
    # With positions in three dimensions a page's are not those of its tokens.
    if model.uses_mrope:
        return None
    from ...transformers._cache_config import latent_rotary_of, rotary_of

    return (latent_rotary_of if model.use_mla else rotary_of)(model.hf_text_config).rope
