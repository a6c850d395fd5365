"""One stage of a Llama that is cut into several: some layers of made-up weights which stay compressed, with the table of embeddings before
the first and the head behind the last.

Weights are made, compressed and freed one matrix at a time, so that a stage never needs more memory than its blobs and one matrix. Large
matrices are held as several of fewer rows, each a blob: what is decoded at a time is one of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from _kv_made import Shape
from _kv_parts import PartedCache
from tenfold._codec import encode_options
from tenfold.torch.kept import Layers, Site, Stage
from tenfold.torch.kept._compress import LANE_VALUES, hold, keep
from torch import nn


class Rows(nn.Module):
    """A linear layer as several, each of some rows."""

    def __init__(self, columns: int, counts: list[int]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(columns, count, bias=False) for count in counts)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return torch.cat([part(given) for part in self.parts], dim=-1)


class Table(nn.Module):
    """A table of embeddings as several, each of some rows. One token needs one of them."""

    def __init__(self, columns: int, counts: list[int]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Embedding(count, columns) for count in counts)

    def forward(self, token: int, device: torch.device) -> torch.Tensor:
        for part in self.parts:
            if token < part.num_embeddings:
                break
            token -= part.num_embeddings
        found: torch.Tensor = part(torch.tensor([[token]], device=device))
        return found


class StageModel(nn.Module):
    """Some layers of a model.

    Args:
        config: of the whole model.
        layers: how many.
        embeds: whether it begins with the table of embeddings.
        predicts: whether it ends with the norm and the head.
        most: bytes of a matrix that is decoded at a time, in bf16.
    """

    def __init__(self, config: Any, layers: int, *, embeds: bool, predicts: bool, most: int) -> None:
        from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm

        super().__init__()
        self._most = most
        self.layers = nn.ModuleList(LlamaDecoderLayer(config, number) for number in range(layers))
        for layer in self.layers:
            self._cut(layer)
        sizes = self._counts(config.vocab_size, config.hidden_size)
        self.table = Table(config.hidden_size, sizes) if embeds else None
        self.norm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps) if predicts else None
        self.head = Rows(config.hidden_size, sizes) if predicts else None

    def forward(self, given: Any, turns: tuple[torch.Tensor, torch.Tensor], cache: PartedCache) -> torch.Tensor:
        """One token: its number or its hidden state, (1, 1, column), to its hidden state or its logits. `turns` are its rotary
        embedding."""
        hidden = given if self.table is None else self.table(given, turns[0].device)
        for layer in self.layers:
            hidden = layer(hidden, attention_mask=None, position_embeddings=turns, past_key_values=cache)
        if self.norm is not None and self.head is not None:
            hidden = self.head(self.norm(hidden))
        return hidden

    def attend_with(self, cache: PartedCache) -> None:
        """Tells all attention which cache it is over."""
        for layer in self.layers:
            layer.self_attn.cache = cache

    def _counts(self, rows: int, columns: int) -> list[int]:
        """Rows of the parts of a matrix: as few parts as may be, all about as large."""
        parts = -(-2 * rows * columns // self._most)
        return [(part + 1) * rows // parts - part * rows // parts for part in range(parts)]

    def _cut(self, layer: nn.Module) -> None:
        for child in list(layer.modules()):
            for name, linear in list(child.named_children()):
                if type(linear) is nn.Linear and linear.weight.nbytes > self._most:
                    setattr(child, name, Rows(linear.in_features, self._counts(linear.out_features, linear.in_features)))


def build(config: Any, device: torch.device, bits: float, seed: int, tell: Callable[[str, int], None], buffers: int, **how: Any) -> Any:
    """A stage with compressed weights, and what decodes these.

    Args:
        config: of the whole model.
        device: where it is made.
        bits: bits a weight.
        seed: of the weights.
        tell: is told of which layer weights are made.
        buffers: decoded matrices in memory at a time; with two the next is decoded while one is used.
        how: as for `StageModel`.
    """
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            model = StageModel(config, **how).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(torch.float32)
    options = encode_options(bits=bits, effort="fast", prepare="none", lane_values=LANE_VALUES)
    generator = torch.Generator(device).manual_seed(seed)
    stages, before = [], ""
    for name, module in list(model.named_modules()):
        place = ".".join(name.split(".")[:2])
        if place != before and place.startswith("layers."):
            tell("weights", int(place.split(".")[1]))
        before = place
        weight = module._parameters.get("weight")
        if weight is None:
            continue
        made = _made(tuple(weight.shape), device, generator)
        site = Site(f"{name}.weight", module, "weight", nn.Parameter(made, requires_grad=False))
        site.put(site.tensor)
        if made.ndim == 2:
            stages.append(Stage(name, tuple(hold([site], options, options))))
        del made, site
    layers = keep(model, stages, buffers=buffers, prefetch=buffers > 1)
    return model, layers


def weights_of(layers: Layers) -> tuple[int, int]:
    """Bytes of all blobs, and how many values they hold."""
    return sum(held.blob().nbytes for held in layers.held), sum(held.nbytes // 2 for held in layers.held)


def parameters(shape: Shape) -> int:
    """Weights of a whole model in matrices."""
    layer = 2 * shape.hidden * (shape.hidden + shape.columns) + 3 * shape.hidden * shape.inner
    return shape.layers * layer + 2 * shape.vocabulary * shape.hidden


def _made(size: tuple[int, ...], device: torch.device, generator: torch.Generator) -> torch.Tensor:
    """Made-up weights in bf16: N(0, 0.02), rows of different scales, and a value in a thousand eight times as large. Norms are ones."""
    weight = torch.empty(size, dtype=torch.bfloat16, device=device)
    if len(size) != 2:
        return weight.fill_(1)
    weight.normal_(std=0.02, generator=generator)
    scales = torch.exp2(0.5 * torch.randn(size[0], 1, device=device, generator=generator))
    weight.mul_(scales.to(weight.dtype))
    flat = weight.view(-1)
    flat[torch.randint(len(flat), (len(flat) // 1000,), device=device, generator=generator)] *= 8
    return weight
