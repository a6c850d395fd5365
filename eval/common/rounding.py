"""Quantisers without an entropy coder, each with its side information as f16: what most low-bit model files hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from common.coders import Coded, Weights

NF4 = np.array(
    [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
        -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
        0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ],
    np.float32,
)  # fmt: skip
"""The published code values of NF4."""


@dataclass(frozen=True)
class RoundToNearest:
    """Whole bits for each value, and a scale and a minimum for each group of neighbours in a row."""

    group: int = 64
    hadamard: bool = False
    """Whether rows are rotated first, with random signs."""

    def side_bits(self) -> float:
        """Bits of side information for each value: two halves a group."""
        return 32 / self.group

    def __call__(self, weights: Weights, bits: float) -> Coded:
        levels = 2 ** int(bits) - 1

        def one(rows: np.ndarray) -> np.ndarray:
            if not self.hadamard:
                return self._round(rows, levels)
            signs = np.random.default_rng(0).choice(np.float32([-1, 1]), rows.shape[-1])
            return rotate(self._round(rotate(rows * signs), levels)) * signs

        stored = bits_of(weights, self.group, lambda groups: groups * 32, int(bits))
        return Coded({name: one(as_rows(w)).reshape(w.shape) for name, w in weights.items()}, stored)

    def _round(self, rows: np.ndarray, levels: int) -> np.ndarray:
        def one(groups: np.ndarray) -> np.ndarray:
            low = half(groups.min(-1, keepdims=True))
            scale = half((groups.max(-1, keepdims=True) - low) / levels)
            safe = np.where(scale > 0, scale, 1)
            return np.clip(np.rint((groups - low) / safe), 0, levels) * scale + low

        return by_group(rows, self.group, one)


@dataclass(frozen=True)
class NormalFloat:
    """NF4: four bits for each value, and the largest magnitude of each block of 64."""

    block: int = 64

    def __call__(self, weights: Weights, bits: float) -> Coded:
        middle = (NF4[1:] + NF4[:-1]) / 2

        def one(groups: np.ndarray) -> np.ndarray:
            most = half(np.abs(groups).max(-1, keepdims=True))
            return NF4[np.searchsorted(middle, groups / np.where(most > 0, most, 1))] * most

        stored = bits_of(weights, self.block, lambda groups: groups * 16, 4)
        return Coded({n: by_group(as_rows(w), self.block, one).reshape(w.shape) for n, w in weights.items()}, stored)


def as_rows(weight: np.ndarray) -> np.ndarray:
    """A weight as rows of inputs, in f32."""
    return np.float32(weight).reshape(-1, weight.shape[-1] if weight.ndim else 1)


def half(values: np.ndarray) -> np.ndarray:
    """Values as a decoder would see them that reads f16."""
    return np.float32(np.float16(values))


def by_group(rows: np.ndarray, group: int, one: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Does something to groups of neighbours in each row; the last group of a row may be shorter."""
    whole = rows.shape[-1] // group * group
    out = np.empty_like(rows)
    out[:, :whole] = one(rows[:, :whole].reshape(-1, group)).reshape(len(rows), whole)
    if whole < rows.shape[-1]:
        out[:, whole:] = one(rows[:, whole:])
    return out


def bits_of(weights: Weights, group: int, side: Callable[[int], int], bits: int) -> float:
    """Bits a value of codes and of the side information of all groups."""
    values = sum(w.size for w in weights.values())
    groups = sum(as_rows(w).shape[0] * -(-as_rows(w).shape[1] // group) for w in weights.values())
    return bits + side(groups) / values


def rotate(rows: np.ndarray) -> np.ndarray:
    """An orthonormal Hadamard transform of each row, in blocks: the largest power of two, then that of the rest, and
    so on. It is its own inverse."""
    out, start = np.array(rows, np.float32), 0
    while start < out.shape[1]:
        size = 1 << ((out.shape[1] - start).bit_length() - 1)
        block = out[:, start : start + size]
        step = 1
        while step < size:
            pairs = block.reshape(len(out), -1, 2, step)
            block = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], 2).reshape(block.shape)
            step *= 2
        out[:, start : start + size] = block / np.sqrt(np.float32(size))
        start += size
    return out
