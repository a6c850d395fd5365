"""Error feedback: the rounding error of a gradient is added to the next one, so that nothing is lost for good."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch


class Residuals:
    """Residuals by parameter name, concatenated for as long as the same parameters arrive together.

    DistributedDataParallel rebuilds its buckets after the first iteration, so the grouping may change.
    """

    def __init__(self) -> None:
        self._together: dict[tuple[str, ...], torch.Tensor] = {}
        self._sizes: dict[str, int] = {}

    def view(self, names: Sequence[str], sizes: Sequence[int], device: torch.device) -> torch.Tensor:
        """Returns the concatenated residuals of some parameters, to be changed in place; new ones are zero."""
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
                self.add(kept)
            self._together[key] = found
            self._sizes.update(zip(names, sizes, strict=True))
        return found

    def by_name(self) -> dict[str, torch.Tensor]:
        """Returns views of all residuals."""
        return {
            name: part
            for names, together in self._together.items()
            for name, part in zip(names, pieces(together, [self._sizes[name] for name in names]), strict=True)
        }

    def add(self, residuals: Mapping[str, torch.Tensor]) -> None:
        """Adds copies of residuals, each separate until its bucket arrives."""
        for name, residual in residuals.items():
            self._together[(name,)] = residual.detach().to(torch.float32, copy=True).flatten()
            self._sizes[name] = residual.numel()

    def names(self) -> Iterable[str]:
        """Returns the names of all parameters with a residual."""
        return self._sizes.keys()

    def scale_(self, factor: float) -> None:
        """Multiplies all residuals."""
        for residual in self._together.values():
            residual.mul_(factor)

    def clear(self) -> None:
        """Forgets all residuals."""
        self._together.clear()
        self._sizes.clear()


def pieces(values: torch.Tensor, sizes: Sequence[int]) -> Sequence[torch.Tensor]:
    """Returns views of concatenated values."""
    cut: Sequence[torch.Tensor] = torch.split(values, list(sizes))
    return cut
