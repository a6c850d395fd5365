"""What the weights of a layer should be once the layers before it are compressed, from what both models feed it.

With x the input of a layer in the model as it was and x̂ that behind compressed layers, W·x is what the layer should give and x̂ is what it gets.
The weights that come nearest are W + W·E[(x−x̂)·x̂ᵀ]·H⁻¹ with H = E[x̂·x̂ᵀ]. A layer that writes to the residual stream r can make good for
the drift of the stream too: its target gains E[(r−r̂)·x̂ᵀ]·H⁻¹. How much of that to take is found on contexts that are held back, since what is
learnt from few tokens does not hold for others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

# Values of the correction's share that are tried.
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass
class Drift:
    """Sums over the tokens that a group of layers got in both models: those to learn from, or those that are held back."""

    inputs: torch.Tensor
    """Σ x̂·x̂ᵀ."""
    moved: torch.Tensor
    """Σ (x−x̂)·x̂ᵀ."""
    streams: dict[str, torch.Tensor] = field(default_factory=dict)
    """Σ (r−r̂)·x̂ᵀ for layers that write to the residual stream, by the name of the weight."""
    mass: float = 0.0
    squares: float = 0.0

    @classmethod
    def empty(cls, cols: int, device: torch.device) -> Drift:
        """Of no tokens."""
        square = torch.zeros(cols, cols, dtype=torch.float64, device=device)
        return cls(square, square.clone())

    def add(
        self,
        was: torch.Tensor | None,
        now: torch.Tensor,
        streams: dict[str, tuple[torch.Tensor, torch.Tensor]],
        weights: torch.Tensor,
    ) -> None:
        """Adds tokens × columns: inputs before and now, streams before and now, and how much each token counts."""
        now = now.float()
        weighted = now * weights[:, None]
        self.inputs += weighted.T @ now
        if was is not None:
            self.moved += (was.float() - now).T @ weighted
        for name, (before, after) in streams.items():
            part = ((before.float() - after.float()).T @ weighted).double()
            self.streams[name] = self.streams[name] + part if name in self.streams else part
        self.mass += float(weights.double().sum())
        self.squares += float(weights.double().square().sum())

    def mean(self) -> torch.Tensor:
        """E[x̂·x̂ᵀ]."""
        mean = self.inputs / (self.mass or 1.0)
        return (mean + mean.T) / 2

    def pull(self, name: str, weight: torch.Tensor) -> torch.Tensor:
        """W·E[(x−x̂)·x̂ᵀ] + E[(r−r̂)·x̂ᵀ] of one weight."""
        found = weight.double() @ self.moved
        if name in self.streams:
            found = found + self.streams[name]
        return found / (self.mass or 1.0)

    @property
    def effective(self) -> float:
        """Tokens of equal weight that would say as much as these."""
        return self.mass**2 / self.squares if self.squares else 0.0


def damped(matrix: torch.Tensor, damping: float) -> torch.Tensor:
    """A matrix with more on its diagonal, so that it can be inverted whatever the tokens were."""
    diagonal = matrix.diagonal()
    extra = damping * diagonal + 1e-9 * diagonal.mean().clamp_min(1e-30)
    return matrix + torch.diag(extra)


def correct(
    name: str, weight: torch.Tensor, outputs: torch.Tensor | None, seen: Drift, held: Drift | None, damping: float
) -> tuple[torch.Tensor, float]:
    """The target of a weight, and the share of the correction that is in it: the best on the tokens held back."""
    factor = torch.linalg.cholesky(damped(seen.mean(), damping))
    whole = torch.cholesky_solve(seen.pull(name, weight).T, factor).T
    rows = torch.ones(len(weight), dtype=torch.float64, device=weight.device) if outputs is None else outputs.double()
    if held is None or not held.mass:
        return weight, 0.0
    # The squared error of the outputs on tokens held back is a parabola over the share.
    gained = float((rows[:, None] * whole * held.pull(name, weight)).sum())
    spent = float((rows[:, None] * (whole @ held.mean()) * whole).sum())
    share = min(SHARES, key=lambda share: share * share * spent - 2 * share * gained)
    return (weight.double() + share * whole).to(weight.dtype), share
