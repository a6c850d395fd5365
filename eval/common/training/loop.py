"""Data-parallel training with workers side by side: one model, a batch and gradients for each worker, one average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from tqdm import tqdm

from common.training.exchanges import Exchange, Gradients, OneBit
from common.training.gpt import Shape, Text, gpt, loss_of
from common.training.stages import Link, staged


@dataclass(frozen=True)
class Schedule:
    """How long and how fast."""

    steps: int
    batch: int
    workers: int
    rate: float = 1e-3
    warmup: float = 0.05
    """Share of the steps in which the rate rises."""
    betas: tuple[float, float] = (0.9, 0.95)
    decay: float = 0.1
    judged: int = 64
    """Held-out contexts that are judged."""
    every: int = 25
    """Steps between two judgements."""
    seed: int = 1

    def rate_at(self, step: int) -> float:
        """Up for some of the steps, then down along a cosine to a tenth."""
        rise = max(int(self.steps * self.warmup), 1)
        if step < rise:
            return self.rate * (step + 1) / rise
        done = (step - rise) / max(self.steps - rise, 1)
        return self.rate * (0.55 + 0.45 * float(torch.cos(torch.tensor(done * torch.pi))))


class Adam:
    """AdamW on gradients, or on a momentum that others made, with variances as they are."""

    def __init__(self, model: torch.nn.Module, schedule: Schedule) -> None:
        self._parameters = dict(model.named_parameters())
        self._schedule = schedule
        self._first: Gradients = {}
        self._second: Gradients = {}
        self._seen = 0

    @torch.no_grad()
    def step(self, average: Gradients, rate: float, *, momentum: bool) -> None:
        """One step; with `momentum` the averages are momenta and variances stay."""
        one, two = self._schedule.betas
        if not momentum:
            self._seen += 1
        for name, parameter in self._parameters.items():
            gradient = average[name]
            if name not in self._first:
                self._first[name], self._second[name] = torch.zeros_like(gradient), torch.zeros_like(gradient)
            first, second = self._first[name], self._second[name]
            if momentum:
                first.copy_(gradient)
            else:
                first.lerp_(gradient, 1 - one)
                second.mul_(two).addcmul_(gradient, gradient, value=1 - two)
            if parameter.dim() > 1:
                parameter.mul_(1 - rate * self._schedule.decay)
            # Momenta of later steps need no correction: it is 1 by then.
            size = first / (1 - one**self._seen)
            parameter.sub_(rate * size / ((second / (1 - two**self._seen)).sqrt() + 1e-8))


def train(
    name: str, shape: Shape, text: Text, schedule: Schedule, exchange: Exchange, device: str, link: Link | None = None
) -> dict[str, Any]:
    """Trains a model and returns its curves: steps with the held-out loss, and the loss of training at each step.

    With a link the model is cut into stages, and what one sends to the next goes over it; workers are micro-batches then.
    """
    model = gpt(shape, schedule.seed)
    model = (model if link is None else staged(model, link)).to(device)
    optimiser = Adam(model, schedule)
    batches = [text.batches(w, schedule.batch, shape.context, schedule.seed) for w in range(schedule.workers)]
    losses, curve = [], []
    cast = torch.autocast(device, torch.bfloat16, enabled=device != "cpu")
    for step in tqdm(range(schedule.steps), desc=name, leave=False, disable=None):
        if link is not None:
            link.step = step
        workers, loss = [], 0.0
        for batch in batches:
            tokens, targets = next(batch)
            with cast:
                one = loss_of(model(tokens), targets)
            model.zero_grad(set_to_none=True)
            one.backward()
            workers.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
            loss += one.detach() / schedule.workers
        losses.append(loss)
        average = exchange.average(workers)
        momentum = isinstance(exchange, OneBit) and exchange.compressing
        optimiser.step(average, schedule.rate_at(step), momentum=momentum)
        if (step + 1) % schedule.every == 0 or step + 1 == schedule.steps:
            curve.append((step + 1, judge(model, shape, text, schedule, cast)))
    return {
        "bits": exchange.rate,
        "loss": curve[-1][1],
        "held_out": curve,
        "training": [round(float(v), 4) for v in torch.stack(losses).cpu()],
    }


@torch.no_grad()
def judge(model: torch.nn.Module, shape: Shape, text: Text, schedule: Schedule, cast: Any) -> float:
    """The loss on held-out text."""
    total, count = 0.0, 0
    model.eval()
    for tokens, targets in text.judged(4 * schedule.batch, shape.context, schedule.judged):
        with cast:
            total += float(loss_of(model(tokens), targets)) * len(tokens)
        count += len(tokens)
    model.train()
    return total / count
