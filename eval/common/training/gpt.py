"""A small GPT over bytes, and text for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256


@dataclass(frozen=True)
class Shape:
    """Sizes of a model."""

    width: int
    layers: int
    heads: int
    context: int

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.layers} layers of {self.width}, context {self.context}"


SHAPES = {
    "tiny": Shape(64, 2, 2, 64),
    "small": Shape(256, 4, 4, 128),
    "25m": Shape(512, 8, 8, 256),
    "160m": Shape(1024, 12, 16, 512),
}


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm and added to what came in."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        parts = self.qkv(self.before_attention(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(functional.gelu(self.up(self.before_mlp(x))))


class Embedding(nn.Module):
    """Bytes and positions to vectors."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, shape.width), nn.Embedding(shape.context, shape.width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]


class Head(nn.Module):
    """Vectors to scores of bytes."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm, self.scores = nn.LayerNorm(shape.width), nn.Linear(shape.width, VOCABULARY, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores(self.norm(x))


def gpt(shape: Shape, seed: int) -> nn.Sequential:
    """A model, the same for the same seed; its parts can be cut into stages."""
    torch.manual_seed(seed)
    model = nn.Sequential(Embedding(shape), *(Block(shape) for _ in range(shape.layers)), Head(shape))
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            # What is added to the stream is added once a layer and twice: it starts smaller.
            deep = name.endswith(("out.weight", "down.weight"))
            # A stream that starts small is turned over by what the first steps add to it, and long models take many to recover.
            size = 0.5 if name.startswith("0.") else 0.02
            nn.init.normal_(parameter, std=size / ((2 * shape.layers) ** 0.5 if deep else 1))
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model


def loss_of(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy."""
    return functional.cross_entropy(scores.float().view(-1, VOCABULARY), targets.reshape(-1))


class Text:
    """Bytes of files: the last tenth of the last file is for judging, all before it for training."""

    def __init__(self, files: list[Path], device: str) -> None:
        data = b"".join(file.read_bytes() for file in files)
        held = files[-1].stat().st_size // 10
        tokens = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)
        self.train, self.held_out = tokens[:-held], tokens[-held:]

    def batches(self, worker: int, batch: int, context: int, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Without end: places drawn for a worker, the same for every coder."""
        generator = torch.Generator().manual_seed(seed * 1000 + worker)
        while True:
            at = torch.randint(len(self.train) - context - 1, (batch,), generator=generator)
            rows = torch.stack([self.train[i : i + context + 1] for i in at.tolist()]).long()
            yield rows[:, :-1], rows[:, 1:]

    def judged(self, batch: int, context: int, most: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The held-out text in order, `most` contexts at most."""
        count = min((len(self.held_out) - 1) // context, most)
        rows = torch.stack([self.held_out[i * context : i * context + context + 1] for i in range(count)]).long()
        for part in rows.split(batch):
            yield part[:, :-1], part[:, 1:]
