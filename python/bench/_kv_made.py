"""Made-up models and caches for the benches of KV caches: shapes, keys and values, bases that fit these, and weights."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tenfold import _native

# Of the rotary embedding, as Llama 3 has it.
BASE = 500_000.0
# Tokens that are made at a time: rows of a long context take much memory as f32.
PART = 8192


@dataclass(frozen=True)
class Shape:
    """A Llama."""

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    vocabulary: int

    @property
    def head(self) -> int:
        """Columns of a head."""
        return self.hidden // self.heads

    @property
    def columns(self) -> int:
        """Columns of the keys of a layer."""
        return self.kv_heads * self.head

    def nbytes(self, tokens: int) -> int:
        """Bytes of keys and values in bf16."""
        return 2 * 2 * self.layers * self.columns * tokens


SIZES = {
    "tiny": Shape(layers=3, hidden=256, inner=512, heads=4, kv_heads=2, vocabulary=1024),
    "8b": Shape(layers=32, hidden=4096, inner=14336, heads=32, kv_heads=8, vocabulary=128256),
}


def configuration(shape: Shape, positions: int) -> Any:
    """A model's configuration, for so many positions."""
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        vocab_size=shape.vocabulary,
        max_position_embeddings=positions,
        rope_parameters={"rope_type": "default", "rope_theta": BASE},
        tie_word_embeddings=False,
        dtype="bfloat16",
        attn_implementation="sdpa",
    )


def rotary(config: Any, device: torch.device) -> torch.nn.Module:
    """The rotary embedding of a model."""
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    return LlamaRotaryEmbedding(config=config).to(device)


def build(config: Any, device: torch.device) -> Any:
    """Makes a model with weights of N(0, 0.02) in bf16, straight on the device."""
    from transformers import LlamaForCausalLM

    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            model = LlamaForCausalLM(config).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(torch.float32)
    model.to_empty(device=device)
    # Its frequencies are no weights: on the meta device they were never computed.
    model.model.rotary_emb = rotary(config, device)
    torch.manual_seed(1)
    for weight in model.parameters():
        if weight.ndim == 2:
            weight.normal_(std=0.02)
        else:
            weight.fill_(1)
    if model.config._attn_implementation != "sdpa":
        raise SystemExit(f"the model attends with {model.config._attn_implementation}, not with sdpa")
    return model


class Made:
    """Keys and values with the statistics of a real cache: a mixture of few numbers a token with decaying scales, and noise.

    Keys are made before the rotary embedding, where bases are fitted, and then turned, as a cache holds them. The same layer
    and side always get the same rows.

    Args:
        shape: of the model.
        device: where they are made.
        config: of the model, for its rotary embedding.
        strong: numbers that make a token's row; an eighth of the columns unless stated.
    """

    def __init__(self, shape: Shape, device: torch.device, config: Any, strong: int | None = None) -> None:
        self.shape, self.device = shape, device
        self._rotary = rotary(config, device)
        few = strong or max(shape.columns // 8, 8)
        decay = 4 * torch.exp2(-6 * torch.arange(few, device=device) / few)
        generator = torch.Generator(device).manual_seed(0)
        self._mix = torch.randn(few, shape.columns, generator=generator, device=device) * decay[:, None] / few**0.5

    def parts(self, layer: int, side: int, tokens: int) -> Iterator[tuple[int, torch.Tensor]]:
        """Rows of the keys (side 0) or values (side 1) of a layer, part by part: the first token, and (tokens, heads, columns) in bf16."""
        generator = torch.Generator(self.device).manual_seed(1 + 2 * layer + side)
        for start in range(0, tokens, PART):
            count = min(PART, tokens - start)
            rows = self._rows(count, generator).bfloat16().view(count, self.shape.kv_heads, self.shape.head)
            yield start, self._turned(rows, start) if side == 0 else rows

    def states(self, layer: int, side: int, tokens: int) -> torch.Tensor:
        """The same at once, as a cache of transformers takes them: (1, heads, tokens, columns)."""
        made = torch.empty((1, self.shape.kv_heads, tokens, self.shape.head), dtype=torch.bfloat16, device=self.device)
        for start, rows in self.parts(layer, side, tokens):
            made[0, :, start : start + len(rows)] = rows.transpose(0, 1)
        return made

    def fit(self, path: Path) -> None:
        """Makes a file of bases from other rows of the same kind."""
        since = time.perf_counter()
        shape = self.shape
        generator = torch.Generator(self.device).manual_seed(10_000)
        with tempfile.TemporaryDirectory() as folder:
            captured = Path(folder) / "captured.safetensors"
            rows = self._rows(4 * shape.columns, generator).bfloat16().cpu()
            named = {f"layers.{layer}.{kind}": rows.clone() for layer in range(shape.layers) for kind in ("k_before_rope", "v")}
            save_file(named, captured)
            how = ["--group", 1, "--rope", f"base={BASE:.0f},head={shape.head},pairing=halves", "--head-dim", shape.head]
            command = ["basis", "fit", captured, "--out", path, "--parts", 0, "--bits", 2.5, "--quiet", *how]
            if _native.main(["tenfold", *map(str, command)]) != 0:
                raise SystemExit("the bases were not made")
        print(f"bases of {path.stat().st_size / 1e6:.0f} MB, made in {time.perf_counter() - since:.0f} s", flush=True)

    def _rows(self, tokens: int, generator: torch.Generator) -> torch.Tensor:
        few = torch.randn(tokens, len(self._mix), generator=generator, device=self.device)
        noise = torch.randn(tokens, self._mix.shape[1], generator=generator, device=self.device)
        return torch.addmm(noise, few, self._mix, beta=0.02)

    def _turned(self, rows: torch.Tensor, start: int) -> torch.Tensor:
        """Keys at their positions, as the model would turn them."""
        positions = torch.arange(start, start + len(rows), device=self.device)[None]
        cos, sin = (of[0, :, None] for of in self._rotary(rows, positions))
        first, second = rows.chunk(2, dim=-1)
        return rows * cos + torch.cat((-second, first), dim=-1) * sin
