"""Peers of the KV cache: coders that take it as it is, keys with their positions in, KVTC's recipe, and principal components as
pictures."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from common.bases import Statistics
from common.cache import Cache, Rotary, layers_of, rows
from common.coders import Coded, Coder, Weights
from common.kvcoders import CodedCaches, bf16, ideal_step
from common.parallel import each
from common.rounding import half, rotate


@dataclass(frozen=True)
class AsItIs:
    """Any coder of tensors on keys and values of each layer, tokens × columns, as attention reads them."""

    coder: Coder
    rotary: Rotary
    sinks: int = 0
    """Tokens at the start of a context that are kept exact, in bf16."""

    def __call__(self, caches: Sequence[Cache], bits: float) -> CodedCaches:
        before = [{"keys": self.rotary.turn(cache.keys), "values": cache.values} for cache in caches]
        tensors = {
            f"{context}.{layer}.{kind}": one[self.sinks :]
            for context, kinds in enumerate(before)
            for kind, layers in kinds.items()
            for layer, one in enumerate(layers)
        }
        coded = self.coder(tensors, bits)

        def after(context: int, kind: str) -> np.ndarray:
            layers = bf16(before[context][kind])
            for layer, one in enumerate(layers):
                one[self.sinks :] = coded.weights[f"{context}.{layer}.{kind}"]
            return layers

        decoded = [Cache(self.rotary.turn(after(i, "keys"), back=True), after(i, "values")) for i in range(len(caches))]
        exact = self.sinks / caches[0].keys.shape[1]
        return CodedCaches(decoded, coded.bits * (1 - exact) + 16 * exact, {"sinks": self.sinks})


@dataclass(frozen=True)
class HadamardScalar:
    """Like TurboQuant: each head of a token is rotated at random, its length kept as f16, and each of its coordinates,
    which are then nearly Gaussian, takes the nearest of 2^bits numbers that are best for a Gaussian."""

    head: int = 64

    def __call__(self, tensors: Weights, bits: float) -> Coded:
        codes = lloyd_max(int(bits))
        middle = (codes[1:] + codes[:-1]) / 2
        signs = np.random.default_rng(0).choice(np.float32([-1, 1]), self.head)

        def one(tensor: np.ndarray) -> np.ndarray:
            heads = rotate(tensor.reshape(-1, self.head) * signs)
            length = half(np.sqrt(np.square(heads).mean(-1, keepdims=True)))
            near = codes[np.searchsorted(middle, heads / np.where(length > 0, length, 1))]
            return (rotate(near * length) * signs).reshape(tensor.shape)

        return Coded({name: one(tensor) for name, tensor in tensors.items()}, int(bits) + 16 / self.head)


@dataclass(frozen=True)
class Float8:
    """A cast to the eight bits of e4m3, as serving engines store caches; what is too large becomes the largest."""

    def __call__(self, tensors: Weights, bits: float) -> Coded:
        most = torch.finfo(torch.float8_e4m3fn).max

        def one(tensor: np.ndarray) -> np.ndarray:
            return torch.from_numpy(tensor).clamp(-most, most).to(torch.float8_e4m3fn).float().numpy()

        return Coded({name: one(tensor) for name, tensor in tensors.items()}, 8.0)


def lloyd_max(bits: int) -> np.ndarray:
    """The 2^bits numbers with the least mean squared error for a Gaussian of variance 1."""
    points = np.linspace(-8, 8, 10_001)
    weight = np.exp(-points * points / 2)
    codes = np.linspace(-1, 1, 2**bits) * (1 + bits / 2) if bits else np.zeros(1)
    for _ in range(300):
        nearest = np.searchsorted((codes[1:] + codes[:-1]) / 2, points)
        total = np.bincount(nearest, weight, len(codes))
        codes = np.bincount(nearest, weight * points, len(codes)) / np.maximum(total, 1e-300)
    return np.float32(codes)


@dataclass(frozen=True)
class Kvtc:
    """The recipe of KVTC: principal components across all layers, of keys (before positions) and of values; whole bits for
    each component so that the squared error is least within the rate; DEFLATE. The first and the last tokens of a
    context are exact, in bf16.

    Bits are dealt one by one to the component that gains most. As each bit gains less than the one before, that is
    what dynamic programming finds too. Scales come from the calibration, so they take no bytes. DEFLATE sees symbols packed
    to their bits, or one to a byte, whichever it makes less of."""

    axes: Sequence[Axes]
    """Of keys and of values."""
    sinks: int = 4
    recent: int = 0

    @classmethod
    def fitted(cls, seen: Sequence[Statistics]) -> Kvtc:
        """With principal components of what was seen of keys and of values."""
        return cls([Axes.of(one.means, one.covariance) for one in seen])

    def keeping(self, recent: int) -> Kvtc:
        """The same with this many recent tokens exact."""
        return replace(self, recent=recent)

    def __call__(self, caches: Sequence[Cache], bits: float) -> CodedCaches:
        first = self._coordinates(caches[0])

        def taken(dealt: float) -> float:
            sizes = [one.code(part, dealt)[1] for one, part in zip(self.axes, first)]
            return 8 * (sum(sizes) + self._exact(caches[0])) / caches[0].size

        # DEFLATE gains on what was dealt, the exact tokens cost: the deal that meets the rate is searched for.
        low, high = 0.0, 2 * bits + 1
        for _ in range(6):
            dealt = (low + high) / 2
            low, high = (dealt, high) if taken(dealt) < bits else (low, dealt)
        return self.at(caches, low)

    def at(self, caches: Sequence[Cache], dealt: float) -> CodedCaches:
        """Caches after so many bits a value were dealt."""
        done = each(lambda cache: self._code(cache, dealt), caches)
        stored = sum(size for _, size in done)
        basis = sum(2 * int(np.count_nonzero(deal(a.variances, dealt))) * len(a.means) for a in self.axes)
        settings = {"dealt": dealt, "sinks": self.sinks, "recent": self.recent, "basis_bytes": basis}
        return CodedCaches([cache for cache, _ in done], 8 * stored / sum(c.size for c in caches), settings)

    def _middle(self, table: np.ndarray) -> slice:
        return slice(self.sinks, len(table) - self.recent)

    def _exact(self, cache: Cache) -> int:
        """Bytes of the exact tokens."""
        return 2 * (self.sinks + self.recent) * cache.size // cache.keys.shape[1]

    def _coordinates(self, cache: Cache) -> list[np.ndarray]:
        tables = [rows(layers) for layers in cache]
        return [one.coordinates(table[self._middle(table)]) for one, table in zip(self.axes, tables)]

    def _code(self, cache: Cache, bits: float) -> tuple[Cache, int]:
        parts, stored = [], self._exact(cache)
        for layers, one, coordinates in zip(cache, self.axes, self._coordinates(cache)):
            out = bf16(rows(layers))
            codes, size = one.code(coordinates, bits)
            out[self._middle(out)] = one.values(codes)
            parts.append(layers_of(out, len(layers)))
            stored += size
        return Cache(*parts), stored


@dataclass(frozen=True)
class InPictures:
    """Principal components as pictures, the recipe of torch-nvenc-compress: a basis for keys (before positions) and one for values, of all
    layers side by side; the coordinates of a context, of keys and of values, become 8-bit samples with one scale and go through a video
    codec. Components that a Gaussian would not code at the rate are left out. The first tokens of a context are exact, in bf16."""

    axes: Sequence[Axes]
    """Of keys and of values."""
    coder: Coder
    """Of tensors."""
    sinks: int = 1

    @classmethod
    def fitted(cls, seen: Sequence[Statistics], coder: Coder) -> InPictures:
        """With principal components of what was seen of keys and of values."""
        return cls([Axes.of(one.means, one.covariance) for one in seen], coder)

    def __call__(self, caches: Sequence[Cache], bits: float) -> CodedCaches:
        size = sum(cache.size for cache in caches)
        exact = 16 * self.sinks / caches[0].keys.shape[1]
        decoded, stored, basis = [], exact * size, 0
        for kind, axes in enumerate(self.axes):
            tables = [rows((cache.keys, cache.values)[kind]) for cache in caches]
            rank = _worth(axes.variances, bits)
            tensors = {str(i): axes.coordinates(table[self.sinks :])[:, :rank] for i, table in enumerate(tables)}
            # What the exact tokens leave, shared out among the coordinates.
            coded = self.coder(tensors, (bits - exact) * tables[0].size / tensors["0"].size)
            stored += coded.bits * sum(one.size for one in tensors.values())
            basis += 2 * rank * len(axes.means)
            decoded.append([self._put(axes, table, coded.weights[str(i)]) for i, table in enumerate(tables)])
        layers = [len(kind) for kind in caches[0]]
        made = [Cache(*map(layers_of, sides, layers)) for sides in zip(*decoded)]
        return CodedCaches(made, stored / size, {"sinks": self.sinks, "basis_bytes": basis})

    def _put(self, axes: Axes, table: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """A table of the exact tokens and those of coordinates."""
        out = bf16(table)
        out[self.sinks :] = axes.values(codes)
        return out


def _worth(variances: np.ndarray, bits: float) -> int:
    """How many components are worth bits at a rate: those with more variance than the error of each that is coded."""
    level = np.square(ideal_step(variances, bits)) / 4
    return max(int(np.count_nonzero(variances > level)), 1)


@dataclass(frozen=True)
class Axes:
    """Principal components of all layers side by side."""

    means: np.ndarray
    vectors: np.ndarray
    """Columns × components."""
    variances: np.ndarray
    device: torch.device | str = "cpu"
    """Where products with them are made."""

    @classmethod
    def of(cls, means: np.ndarray, covariance: np.ndarray, device: torch.device | str = "cpu") -> Axes:
        """Those of rows with these statistics, computed on a device."""
        found = torch.linalg.eigh(torch.from_numpy(covariance).to(device))
        variances, vectors = (part.cpu().numpy() for part in found)
        return cls(means, np.ascontiguousarray(vectors[:, ::-1]), np.maximum(variances[::-1], 0), device)

    @cached_property
    def _matrix(self) -> torch.Tensor:
        return torch.from_numpy(self.vectors).to(self.device)

    def coordinates(self, table: np.ndarray) -> np.ndarray:
        """Of rows, strongest first."""
        return (torch.from_numpy(table - self.means).to(self.device) @ self._matrix).cpu().numpy()

    def values(self, codes: np.ndarray) -> np.ndarray:
        """Rows of the strongest coordinates."""
        made = torch.from_numpy(codes).to(self.device) @ self._matrix[:, : codes.shape[1]].T
        return self.means + made.cpu().numpy()

    def code(self, coordinates: np.ndarray, bits: float) -> tuple[np.ndarray, int]:
        """The strongest coordinates after `bits` a value were dealt, and their bytes."""
        dealt = deal(self.variances, bits)
        # Variances fall, and bits with them.
        used = int(np.count_nonzero(dealt))
        codes = np.empty((len(coordinates), used), coordinates.dtype)
        plain, packed = [], []
        for count in np.unique(dealt[:used]):
            here = np.flatnonzero(dealt == count)
            scale = np.sqrt(self.variances[here]) * STEPS[count]
            top = 2 ** int(count) - 1
            level = np.clip(np.rint(coordinates[:, here] / scale + top / 2), 0, top)
            codes[:, here] = (level - top / 2) * scale
            symbols = np.ascontiguousarray(level.T.astype(np.uint8))
            plain.append(symbols.tobytes())
            packed.append(np.packbits(np.unpackbits(symbols[..., None], axis=-1)[..., -int(count) :]).tobytes())
        return codes, min(len(zlib.compress(b"".join(content), 9)) for content in (plain, packed)) if used else 0


STEPS = (0.0, 1.596, 0.9957, 0.586, 0.3352, 0.1881, 0.1041, 0.0569, 0.0308)
"""Best steps of uniform quantisers of 0 to 8 bits for a Gaussian of variance 1 (Max, 1960)."""
ERRORS = (1.0, 0.3634, 0.1188, 0.03744, 0.01154, 0.003495, 0.001041, 0.0003035, 0.00008714)
"""Their mean squared errors."""


def deal(variances: np.ndarray, bits: float) -> np.ndarray:
    """Whole bits, up to 8, for each component, `bits` on average."""
    gains = np.outer(variances, -np.diff(ERRORS))
    # Gains of a component fall, so the largest of all gains are a deal.
    best = np.argsort(-gains, axis=None, kind="stable")[: int(bits * len(variances))]
    return np.bincount(best // gains.shape[1], minlength=len(variances))
