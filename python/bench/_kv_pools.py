"""Made-up tokens in the blocks of an engine, and a codec that fits them: for the benches of pages that go in and out of blocks."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from tenfold import _native
from tenfold.kv import PageCodec

BLOCK, PAGE = 16, 64
# Of the rotary positions.
BASE = 500000.0


def add_arguments(parser: argparse.ArgumentParser, *, pages: int, layers: int) -> None:
    """What every such bench can be told, with its own defaults."""
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pages", type=int, default=pages, help=f"of {PAGE} tokens; 512 are a prefix of 32k")
    parser.add_argument("--layers", type=int, default=layers)
    parser.add_argument("--columns", type=int, default=1024, help="of keys in a layer, in heads of 128 or fewer")
    parser.add_argument("--group", type=int, default=1, help="layers that share a basis")
    parser.add_argument("--strong", type=int, default=512, help="numbers that make a token's row of a group")
    parser.add_argument("--step", type=float, default=0.09)
    parser.add_argument("--rank", default="needed", help="vectors of a basis: a number, all, or as many as 2.5 bits need; 0 for no bases")
    parser.add_argument("--json", type=Path, help="where to keep the figures")


class Pools:
    """Pools with tokens in them, a codec for these, and where the tokens of each page are.

    Keys and values are a mixture of few numbers a token and noise. Tokens lie in blocks in no order.

    Args:
        arguments: see :func:`add_arguments`.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments, self.device = arguments, torch.device(arguments.device)
        self.head = min(128, arguments.columns)
        generator = torch.Generator(self.device).manual_seed(0)
        width = arguments.group * arguments.columns
        decay = 4 * torch.exp2(-6 * torch.arange(arguments.strong, device=self.device) / arguments.strong)
        mix = torch.randn(arguments.strong, width, generator=generator, device=self.device) * decay[:, None] / arguments.strong**0.5
        self.generator, self.mix = generator, mix
        self.codec = self.fitted()
        tokens = PAGE * arguments.pages
        blocks = tokens // BLOCK + 8
        shape = (blocks, BLOCK, arguments.columns // self.head, self.head)
        self.keys, self.values = ([torch.empty(shape, dtype=torch.bfloat16, device=self.device) for _ in range(arguments.layers)]
                                  for _ in range(2))
        order = torch.randperm(blocks, generator=torch.Generator().manual_seed(1))[: tokens // BLOCK]
        self.slots = (order[:, None] * BLOCK + torch.arange(BLOCK)).view(arguments.pages, PAGE)
        self.fill()
        self.positions = [PAGE * page for page in range(arguments.pages)]
        self.bytes = 2 * tokens * arguments.layers * arguments.columns * 2

    def fill(self) -> None:
        """Puts tokens into all blocks, and turns keys as a model does."""
        position = torch.zeros(len(self.keys[0]) * BLOCK, dtype=torch.float64, device=self.device)
        position[self.slots.flatten().to(self.device)] = torch.arange(self.slots.numel(), dtype=torch.float64, device=self.device)
        speed = BASE ** (-torch.arange(0, self.head, 2, dtype=torch.float64, device=self.device) / self.head)
        angle = (position[:, None] * speed).view(-1, BLOCK, 1, self.head // 2)
        cos, sin = angle.cos().float(), angle.sin().float()
        for side in (self.keys, self.values):
            for first in range(0, len(side), self.arguments.group):
                # By parts: rows of a long context take much memory as f32.
                for at in range(0, len(side[0]), 256):
                    rows = self.rows(BLOCK * min(256, len(side[0]) - at)).bfloat16()
                    for number, layer in enumerate(rows.split(self.arguments.columns, dim=1)):
                        tokens = layer.reshape(-1, *side[0].shape[1:])
                        if side is self.keys:
                            one, two = tokens.float().chunk(2, dim=-1)
                            c, s = cos[at : at + 256], sin[at : at + 256]
                            tokens = torch.cat([one * c - two * s, one * s + two * c], dim=-1).bfloat16()
                        side[first + number][at : at + 256] = tokens

    def rows(self, tokens: int) -> torch.Tensor:
        few = torch.randn(tokens, len(self.mix), generator=self.generator, device=self.device)
        noise = 0.02 * torch.randn(tokens, self.mix.shape[1], generator=self.generator, device=self.device)
        return few @ self.mix + noise

    def fitted(self) -> PageCodec:
        """A codec with bases from rows of the same kind."""
        arguments = self.arguments
        if arguments.rank == "0":
            return PageCodec(layers=arguments.layers, group=arguments.group, effort="fast")
        with tempfile.TemporaryDirectory() as folder:
            captured, path = Path(folder) / "captured.safetensors", Path(folder) / "model.basis"
            rows = self.rows(4 * self.mix.shape[1]).bfloat16().cpu().split(arguments.columns, dim=1)
            named = {}
            for layer in range(arguments.layers):
                for kind in ("k_before_rope", "v"):
                    named[f"layers.{layer}.{kind}"] = rows[layer % arguments.group].clone()
            save_file(named, captured)
            how = ["--group", arguments.group, "--rope", f"base={BASE:.0f},head={self.head},pairing=halves", "--head-dim", self.head]
            command = ["basis", "fit", captured, "--out", path, "--parts", 0, "--bits", 2.5, "--rank", arguments.rank, "--quiet", *how]
            if _native.main(["tenfold", *map(str, command)]) != 0:
                raise SystemExit("the bases were not made")
            return PageCodec(path, effort="fast")
