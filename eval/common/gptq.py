"""GPTQ and AWQ by their published recipes: whole bits a value, a scale and a zero point in f16 for each group of inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tenfold.torch import Calibration
from tenfold.torch._layerwise import Passage
from tenfold.torch._stack import Stack
from tenfold.transformers._sequential import Sequential, Target
from tqdm import tqdm
from transformers import PreTrainedModel

from common.coders import Coded, Weights
from common.rounding import bits_of
from common.side_by_side import copied

# Of the mean of the diagonal: what GPTQ adds to it.
DAMPING = 0.01


def grid(values: torch.Tensor, levels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and minimum of each row of a group, as a decoder reads them from f16. Zero is in the range."""
    low, high = values.amin(1, keepdim=True).clamp_max(0), values.amax(1, keepdim=True).clamp_min(0)
    scale = ((high - low) / levels).half().float().clamp_min(1e-8)
    return scale, (low / scale).round()


def snap(values: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, levels: int) -> torch.Tensor:
    """The nearest points of a grid."""
    return ((values / scale).round() - zero).clamp(0, levels).add(zero) * scale


def gptq(weight: torch.Tensor, inputs: torch.Tensor, bits: int, group: int) -> torch.Tensor:
    """One matrix: columns with the largest inputs first, each error made good by those behind it, grids of groups fixed before (Frantar et al., 2022,
    with the authors' `--act-order --static-groups`)."""
    levels, cols = 2**bits - 1, weight.shape[1]
    left = weight.float().clone()
    grids = [grid(left[:, first : first + group], levels) for first in range(0, cols, group)]
    h = inputs.double().clone()
    dead = h.diagonal() == 0
    h[dead, dead] = 1
    left[:, dead] = 0
    h += torch.eye(cols, dtype=h.dtype, device=h.device) * DAMPING * h.diagonal().mean()
    order = h.diagonal().argsort(descending=True)
    left, h = left[:, order], h[order][:, order]
    upper = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(h)), upper=True).float()
    out = torch.empty_like(left)
    for first in range(0, cols, 128):
        last = min(first + 128, cols)
        errors = torch.empty_like(left[:, first:last])
        for j in range(first, last):
            out[:, j] = snap(left[:, j, None], *grids[int(order[j]) // group], levels)[:, 0]
            errors[:, j - first] = (left[:, j] - out[:, j]) / upper[j, j]
            left[:, j:last] -= errors[:, j - first, None] * upper[j, None, j:last]
        left[:, last:] -= errors @ upper[first:last, last:]
    return out[:, order.argsort()]


def awq(weight: torch.Tensor, inputs: torch.Tensor, sizes: torch.Tensor, bits: int, group: int) -> torch.Tensor:
    """One matrix: columns scaled by a power of the mean size of their inputs, the best of twenty, then clipped (Lin et al., 2023).
    The scales go into the layer before, so they take no room."""
    levels = 2**bits - 1

    def rounded(values: torch.Tensor, shrink: float = 1.0) -> torch.Tensor:
        out = torch.empty_like(values)
        for first in range(0, values.shape[1], group):
            part = values[:, first : first + group]
            scale, zero = grid(part * shrink, levels)
            out[:, first : first + group] = snap(part, scale, zero, levels)
        return out

    def loss(candidate: torch.Tensor) -> float:
        off = candidate - weight
        return float(((off @ inputs) * off).sum())

    best, lowest = weight, float("inf")
    for power in range(20):
        scales = sizes.clamp_min(1e-4) ** (power / 20)
        scales = scales / (scales.max() * scales.min()).sqrt()
        for shrink in (1.0, 0.9, 0.8) if bits < 4 else (1.0, 0.95):
            candidate = rounded(weight * scales, shrink) / scales
            found = loss(candidate)
            if found < lowest:
                best, lowest = candidate, found
    return best


@dataclass(frozen=True)
class Peer:
    """GPTQ or AWQ on a model, calibrated on contexts."""

    model: PreTrainedModel
    contexts: Sequence[torch.Tensor]
    recipe: str
    """"gptq" or "awq"."""
    group: int = 128
    device: str = "cpu"

    def __call__(self, weights: Weights, bits: float) -> Coded:
        run = self._gptq if self.recipe == "gptq" else self._awq
        made = run(weights, int(bits))
        stored = bits_of(weights, self.group, lambda groups: groups * (16 + int(bits)), int(bits))
        return Coded(made, stored, {"group": self.group, "contexts": len(self.contexts)})

    def _gptq(self, weights: Weights, bits: int) -> dict[str, np.ndarray]:
        """Layer after layer, each on what the layers before it give once they are quantised."""
        made: dict[str, np.ndarray] = {}
        stack = Stack(copied(self.model, self.device), torch.device(self.device))
        together = 8 if torch.device(self.device).type == "cuda" else 1
        passages = [Passage(part) for part in torch.stack(list(self.contexts)).split(together)]
        with torch.no_grad():
            with stack.outside():
                hidden = [stack.begin(passage.ids).cpu() for passage in passages]
            state = Sequential(stack, passages, 0, hidden, list(hidden))

            def encode(target: Target) -> torch.Tensor:
                found = gptq(target.weight, target.inputs, bits, self.group)
                made[target.name] = found.cpu().numpy()
                return found

            for index in tqdm(range(len(stack.layers)), desc="GPTQ", leave=False):
                state.advance(index, {}, {}, encode)
        return {name: made[name] for name in weights}

    def _awq(self, weights: Weights, bits: int) -> dict[str, np.ndarray]:
        sizes: dict[str, list[torch.Tensor]] = {}
        model = copied(self.model, self.device)
        modules = {f"{name}.weight": module for name, module in model.named_modules() if f"{name}.weight" in weights}
        handles = [module.register_forward_pre_hook(_sizes(sizes, name)) for name, module in modules.items()]
        with Calibration(model) as seen, torch.no_grad():
            for context in tqdm(self.contexts, desc="AWQ", leave=False):
                model(context[None].to(self.device), use_cache=False)
        for handle in handles:
            handle.remove()
        made = {}
        for name, weight in weights.items():
            given = (torch.from_numpy(one).to(self.device) for one in (np.float32(weight), seen.inputs(name)))
            made[name] = awq(*given, torch.stack(sizes[name]).mean(0), bits, self.group).cpu().numpy()
        return made


def _sizes(sizes: dict[str, list[torch.Tensor]], name: str) -> Callable[..., None]:
    def see(_: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        sizes.setdefault(name, []).append(args[0].detach().flatten(0, -2).abs().float().mean(0))

    return see
