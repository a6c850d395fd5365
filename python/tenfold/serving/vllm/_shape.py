"""What an engine's cache looks like, and which engines are refused because theirs looks otherwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from vllm.v1.kv_cache_interface import FullAttentionSpec, KVQuantMode, MLAAttentionSpec

from ..._errors import ArgumentError, UnsupportedError
from ._options import Options

# Smaller pages code worse: docs/vllm.md has figures.
LEAST_PAGE = 64
# Others have a seed of each process, or collide where someone wants them to.
_HASHES = ("sha256", "sha256_cbor")
_DTYPES = ("bfloat16", "float16", "float32")


@dataclass(frozen=True)
class Shape:
    """A cache of full attention in all layers.

    Attributes:
        layers: their names, in order.
        block: tokens of a block of vLLM's.
        page: tokens of a page of tenfold's.
        heads: of keys and of values, on one rank.
        head: columns of one.
        dtype: as torch names it, without ``torch.``.
        ranks: tensor-parallel workers, each of which has a share of the heads, or the latent rows of all.
        latent: columns of a latent row (MLA) that no position turns. They are coded as values, and what follows them, ``head`` columns,
            as keys. 0 for a cache of keys and values.
    """

    layers: tuple[str, ...]
    block: int
    page: int
    heads: int
    head: int
    dtype: str
    ranks: int
    latent: int = 0

    @property
    def blocks(self) -> int:
        """Blocks of a page."""
        return self.page // self.block

    @property
    def value_head(self) -> int:
        """Columns of a head's values."""
        return self.latent or self.head

    @property
    def columns(self) -> tuple[int, int]:
        """Of a token's keys and of its values in one layer."""
        return self.heads * self.head, self.heads * self.value_head

    @property
    def sides(self) -> list[int]:
        """Numbers of a block's keys and of its values in one layer."""
        return [self.block * columns for columns in self.columns]


def shape_of(vllm_config: Any, kv_cache_config: Any, options: Options) -> Shape:
    """The shape of an engine's cache.

    Raises:
        UnsupportedError: its keys and values are kept in a way that pages cannot hold.
        ArgumentError: settings that do not go together.
    """
    _check_settings(vllm_config)
    if options.by_layer:
        _check_by_layer(vllm_config)
    groups = kv_cache_config.kv_cache_groups
    if len(groups) != 1:
        raise UnsupportedError(
            f"the model keeps {len(groups)} kinds of cache (hybrid or sliding-window attention, state-space layers): "
            "TenfoldConnector stores full attention only; run this model without it"
        )
    spec = groups[0].kv_cache_spec
    latent = vllm_config.model_config.use_mla
    _check_spec(spec, latent)
    block = spec.block_size
    page = options.page_tokens or -(-LEAST_PAGE // block) * block
    if page % block:
        raise ArgumentError(f"page_tokens is a multiple of vLLM's block size, {block}; {page} is none")
    ranks = vllm_config.parallel_config.tensor_parallel_size
    if options.bases is not None and ranks > 1 and not latent:
        raise UnsupportedError(
            "bases are for all heads of a model, a tensor-parallel rank has some of them: state none, or use one rank"
        )
    dtype = str(spec.dtype).removeprefix("torch.")
    shape = Shape(tuple(groups[0].layer_names), block, page, spec.num_kv_heads, spec.head_size, dtype, ranks)
    return _split(shape, vllm_config.model_config.hf_text_config) if latent else shape


def _check_settings(vllm_config: Any) -> None:
    transfer, parallel, cache = vllm_config.kv_transfer_config, vllm_config.parallel_config, vllm_config.cache_config
    if transfer.kv_load_failure_policy != "recompute":
        raise ArgumentError(
            'TenfoldConnector needs kv_load_failure_policy="recompute" in KVTransferConfig: with '
            f'"{transfer.kv_load_failure_policy}" a damaged record would fail the request, not cost it some time'
        )
    for name in ("pipeline_parallel_size", "decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name) != 1:
            raise UnsupportedError(f"TenfoldConnector works with tensor and data parallelism; {name} must be 1")
    if vllm_config.speculative_config is not None:
        raise UnsupportedError(
            "TenfoldConnector stores no keys of drafts, and was never tried with speculative decoding: leave one out"
        )
    if vllm_config.weight_transfer_config is not None:
        raise UnsupportedError(
            "weights that change while the engine runs make stored keys and values wrong: set no weight_transfer_config"
        )
    if cache.prefix_caching_hash_algo not in _HASHES:
        raise UnsupportedError(
            f"block hashes of {cache.prefix_caching_hash_algo} differ between processes or can be made to collide: "
            f"set prefix_caching_hash_algo to {' or '.join(_HASHES)}"
        )


def _check_by_layer(vllm_config: Any) -> None:
    """Refuses engines that hand out what a request computed from a damaged page, which shows when the step is over."""
    if vllm_config.scheduler_config.async_scheduling:
        raise ArgumentError(
            'load="layers" needs an engine that hears of a step before it plans the next one: set async_scheduling to '
            'False (--no-async-scheduling), or load="whole"'
        )
    if vllm_config.use_v2_model_runner:
        raise ArgumentError(
            'load="layers" needs vLLM\'s first model runner, as the second does not take back tokens of a failed load: '
            'set VLLM_USE_V2_MODEL_RUNNER=0, or load="whole"'
        )


def _split(shape: Shape, model: Any) -> Shape:
    """The shape of a cache of latent rows, whose last columns positions turn."""
    latent, rotary = (getattr(model, name, None) for name in ("kv_lora_rank", "qk_rope_head_dim"))
    if not latent or not rotary or (shape.heads, latent + rotary) != (1, shape.head):
        raise UnsupportedError(
            f"the model's latent rows have {shape.heads} × {shape.head} columns, but its configuration speaks of {latent} and {rotary} rotary "
            "ones: TenfoldConnector does not know what they are"
        )
    return replace(shape, head=rotary, latent=latent)


def _check_spec(spec: Any, latent: bool) -> None:
    # Exactly this class: attention sinks with a cache of their own and others are subclasses.
    if type(spec) is not (MLAAttentionSpec if latent else FullAttentionSpec):
        raise UnsupportedError(f"TenfoldConnector stores full attention only, not caches of {type(spec).__name__}")
    if spec.sliding_window is not None or spec.attention_chunk_size is not None or spec.non_causal:
        raise UnsupportedError(
            "TenfoldConnector stores full causal attention only; layers of this model see a window of tokens, or later "
            "ones"
        )
    dtype = str(spec.dtype).removeprefix("torch.")
    if spec.kv_quant_mode != KVQuantMode.NONE or dtype not in _DTYPES:
        raise UnsupportedError(
            f"the engine's cache is quantised ({dtype}) already: set kv_cache_dtype to auto, or do without "
            "TenfoldConnector"
        )
    if latent and (spec.state_content_bytes is not None or spec.page_size_padded is not None or spec.tokens_per_state != 1):
        raise UnsupportedError("TenfoldConnector stores latent rows as they are: none packed with scales, padded or of several tokens")
    if not latent and (spec.head_size_v != spec.head_size or spec.tokens_per_state != 1 or spec.num_heads != spec.num_kv_heads):
        raise UnsupportedError("TenfoldConnector needs keys and values of one width, a row for each token and head")
