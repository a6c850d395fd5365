"""Averages of gradients over workers as each scheme makes them, with the bits that a worker sends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tenfold.torch.distributed._bucket import BucketCodec
from tenfold.torch.distributed._exchange import keep_unsent
from tenfold.torch.distributed._feedback import Residuals
from tenfold.torch.distributed._slot import LEAST, empty_slot

Gradients = dict[str, torch.Tensor]
BUCKET = 25
"""Mebibytes of a bucket of DistributedDataParallel, unless it is told otherwise."""


class Exchange(ABC):
    """Averages the gradients of workers; counts bits."""

    def __init__(self) -> None:
        self.bits = 0.0
        self.values = 0

    def average(self, workers: Sequence[Gradients]) -> Gradients:
        """The average that every worker ends up with."""
        self.values += sum(g.numel() for g in workers[0].values())
        return self._average(workers)

    @abstractmethod
    def _average(self, workers: Sequence[Gradients]) -> Gradients: ...

    @property
    def rate(self) -> float:
        """Bits a value that a worker has sent."""
        return self.bits / max(self.values, 1)


class Uncompressed(Exchange):
    """As they are."""

    def _average(self, workers: Sequence[Gradients]) -> Gradients:
        self.bits += 32 * sum(g.numel() for g in workers[0].values())
        return {name: torch.stack([w[name] for w in workers]).mean(0) for name in workers[0]}


class Tenfold(Exchange):
    """What `tenfold.torch.distributed` does with an exchange by gather, bucket by bucket."""

    def __init__(
        self, workers: int, bits: float, *, feedback: bool, effort: str = "fast", threads: int = 0, bucket: float = BUCKET
    ) -> None:
        super().__init__()
        self._bucket = bucket
        self._codec = BucketCodec(bits, effort, threads)
        self._residuals = [Residuals() for _ in range(workers)] if feedback else None

    def _average(self, workers: Sequence[Gradients]) -> Gradients:
        done: Gradients = {}
        for names in buckets(workers[0], self._bucket):
            sizes = [workers[0][name].numel() for name in names]
            total = None
            for index, worker in enumerate(workers):
                one = self._sent(index, torch.cat([worker[name].flatten() for name in names]), names, sizes)
                total = one if total is None else total.add_(one)
            assert total is not None
            for name, part in zip(names, total.div_(len(workers)).split(sizes), strict=True):
                done[name] = part.view_as(workers[0][name])
        return done

    def _sent(self, worker: int, values: torch.Tensor, names: list[str], sizes: list[int]) -> torch.Tensor:
        if values.numel() < LEAST:
            self.bits += 32 * values.numel() if worker == 0 else 0
            return values
        wanted = None
        if self._residuals is not None:
            wanted = values = self._residuals[worker].view(names, sizes, values.device).add_(values)
        slot = empty_slot(self._codec.room(values.numel()), values.device)
        self._codec.fill(values, slot, f"{worker} {names[0]}")
        sent = self._codec.read(slot, torch.empty_like(values))
        self.bits += 8 * slot.numel() if worker == 0 else 0
        if wanted is not None:
            keep_unsent(wanted, sent)
        return sent


def buckets(gradients: Gradients, most: float = BUCKET) -> list[list[str]]:
    """Names as DistributedDataParallel puts them together: from the last layer on."""
    found: list[list[str]] = [[]]
    size = 0
    for name in reversed(gradients):
        found[-1].append(name)
        size += gradients[name].nbytes
        if size >= most * (1 << 20):
            found.append([])
            size = 0
    return [names for names in found if names]


class Rounded(Exchange):
    """Round to nearest between the extremes of groups of neighbours, which are sent as f16."""

    def __init__(self, workers: int, bits: int, *, feedback: bool, group: int = 128) -> None:
        super().__init__()
        self._levels, self._each, self._group = 2**bits - 1, bits, group
        self._residuals: list[Gradients] | None = [{} for _ in range(workers)] if feedback else None

    def _average(self, workers: Sequence[Gradients]) -> Gradients:
        self.bits += sum(g.numel() * self._each + -(-g.numel() // self._group) * 32 for g in workers[0].values())
        total: Gradients = {}
        for index, worker in enumerate(workers):
            for name, gradient in worker.items():
                kept = None if self._residuals is None else self._residuals[index]
                wanted = gradient if kept is None or name not in kept else gradient + kept[name]
                sent = self._round(wanted)
                if kept is not None:
                    kept[name] = wanted - sent
                total[name] = sent if name not in total else total[name] + sent
        return {name: t / len(workers) for name, t in total.items()}

    def _round(self, values: torch.Tensor) -> torch.Tensor:
        flat = values.flatten()
        short = -flat.numel() % self._group
        # The last value again: extremes stay what they are.
        groups = torch.cat([flat, flat[-1:].expand(short)]).view(-1, self._group)
        # As f16 without its range: gradients are often below what f16 has.
        low = groups.amin(1, keepdim=True)
        scale = (groups.amax(1, keepdim=True) - low) / self._levels
        safe = torch.where(scale > 0, scale, 1)
        rounded = ((groups - low) / safe).round() * scale + low
        return rounded.flatten()[: flat.numel()].view_as(values)


class PowerSgd(Exchange):
    """PowerSGD: matrices as products of two thin ones, by one step of the power method from where the last ended, with feedback.

    Ranks are such that a worker sends about so many bits a value, thin matrices as f32.
    """

    def __init__(self, workers: int, bits: float) -> None:
        super().__init__()
        self._rate = bits
        self._residuals: list[Gradients] = [{} for _ in range(workers)]
        self._right: Gradients = {}

    def _average(self, workers: Sequence[Gradients]) -> Gradients:
        done: Gradients = {}
        for name, first in workers[0].items():
            rank = self._rank(first)
            if rank == 0:
                self.bits += 32 * first.numel()
                done[name] = torch.stack([w[name] for w in workers]).mean(0)
                continue
            rows, columns = first.shape
            self.bits += 32 * rank * (rows + columns)
            wanted = [w[name] + r.get(name, 0) for w, r in zip(workers, self._residuals, strict=True)]
            mean = torch.stack(wanted).mean(0)
            if name not in self._right:
                generator = torch.Generator().manual_seed(len(self._right))
                self._right[name] = torch.randn(columns, rank, generator=generator).to(first)
            left = torch.linalg.qr(mean @ self._right[name]).Q
            self._right[name] = mean.T @ left
            done[name] = left @ self._right[name].T
            for residuals, one in zip(self._residuals, wanted, strict=True):
                residuals[name] = one - done[name]
        return done

    def _rank(self, gradient: torch.Tensor) -> int:
        if gradient.dim() != 2 or gradient.numel() < LEAST:
            return 0
        rows, columns = gradient.shape
        return max(1, min(round(self._rate * rows * columns / 32 / (rows + columns)), rows, columns))


@dataclass
class Momentum:
    """What 1-bit Adam has instead of gradients: a momentum that was exchanged by signs."""

    first: Gradients
    worker: list[Gradients]
    server: Gradients


class OneBit(Exchange):
    """1-bit Adam's scheme: gradients as they are until `warmup` steps are done, then momenta by signs and a scale for each tensor,
    with feedback at the workers and at the server. :attr:`compressing` says when Adam's variances must stay as they are.
    """

    def __init__(self, workers: int, warmup: int, beta: float) -> None:
        super().__init__()
        self._warmup, self._beta, self._steps = warmup, beta, 0
        self._plain = Uncompressed()
        self._state = Momentum({}, [{} for _ in range(workers)], {})

    @property
    def compressing(self) -> bool:
        """Whether averages are of momenta now."""
        return self._steps > self._warmup

    def _average(self, workers: Sequence[Gradients]) -> Gradients:
        self._steps += 1
        first = self._state.first
        if not self.compressing:
            self.bits += 32 * sum(g.numel() for g in workers[0].values())
            mean = self._plain._average(workers)
            for name, gradient in mean.items():
                first[name] = first.get(name, torch.zeros_like(gradient)) * self._beta + gradient * (1 - self._beta)
            return mean
        # Signs up to the server and down again; a scale of a tensor is next to nothing.
        self.bits += sum(g.numel() + 32 for g in workers[0].values())
        for name in workers[0]:
            sent = [
                _signs(first[name] * self._beta + worker[name] * (1 - self._beta), self._state.worker[index], name)
                for index, worker in enumerate(workers)
            ]
            seen = first[name] != 0
            # What never had a gradient has no variance, and a sign would move it without bounds.
            first[name] = _signs(torch.stack(sent).mean(0), self._state.server, name) * seen
        return dict(first)


def _signs(values: torch.Tensor, kept: Gradients, name: str) -> torch.Tensor:
    wanted = values + kept.get(name, 0)
    sent = torch.where(wanted >= 0, 1.0, -1.0) * wanted.norm() / wanted.numel() ** 0.5
    kept[name] = wanted - sent
    return sent
