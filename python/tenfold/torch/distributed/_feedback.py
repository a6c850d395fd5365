"""Error feedback: what rounding leaves of a gradient is added to the next one, so that in the long run nothing is lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch


class Residuals:
    """Residuals by name of a parameter, kept side by side for as long as the same parameters come together.

    Buckets of DistributedDataParallel are built anew after the first step, so what belongs together may change.
    """

    def __init__(self) -> None:
        self._together: dict[tuple[str, ...], torch.Tensor] = {}
        self._sizes: dict[str, int] = {}

    def of(self, names: Sequence[str], sizes: Sequence[int], device: torch.device) -> torch.Tensor:
        """Residuals of some parameters, one after the other, to be changed in place; zeros for those that have none."""
        key = tuple(names)
        found = self._together.get(key)
        if found is None or [self._sizes[name] for name in names] != list(sizes):
            known = self.by_name()
            found = torch.zeros(sum(sizes), device=device)
            for name, part in zip(names, pieces(found, sizes), strict=True):
                if name in known and known[name].numel() == part.numel():
                    part.copy_(known[name])
            taken = set(names)
            for others in [k for k in self._together if taken & set(k)]:
                kept = {name: known[name] for name in others if name not in taken}
                del self._together[others]
                self.take(kept)
            self._together[key] = found
            self._sizes.update(zip(names, sizes, strict=True))
        return found

    def by_name(self) -> dict[str, torch.Tensor]:
        """Views of all residuals."""
        return {
            name: part
            for names, together in self._together.items()
            for name, part in zip(names, pieces(together, [self._sizes[name] for name in names]), strict=True)
        }

    def take(self, residuals: Mapping[str, torch.Tensor]) -> None:
        """Adds copies of residuals, each on its own until its bucket comes."""
        for name, residual in residuals.items():
            self._together[(name,)] = residual.detach().to(torch.float32, copy=True).flatten()
            self._sizes[name] = residual.numel()

    def names(self) -> Iterable[str]:
        """Of all that have a residual."""
        return self._sizes.keys()

    def scale_(self, factor: float) -> None:
        """Multiplies all of them."""
        for residual in self._together.values():
            residual.mul_(factor)

    def clear(self) -> None:
        """Forgets all of them."""
        self._together.clear()
        self._sizes.clear()


def pieces(values: torch.Tensor, sizes: Sequence[int]) -> Sequence[torch.Tensor]:
    """Views of values that lie one after the other."""
    cut: Sequence[torch.Tensor] = torch.split(values, list(sizes))
    return cut
