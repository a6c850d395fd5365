"""What coded caches do to predictions: perplexity, and divergence from those of the uncompressed model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import torch

from common.cache import Cache, Change, Passes
from common.report import Row


class Judge:
    """Contexts that a model is judged on."""

    def __init__(self, passes: Passes, contexts: torch.Tensor, exact: list[torch.Tensor] | None = None) -> None:
        """`exact` is of a judge of the uncompressed model, where this one is not."""
        self.passes, self.contexts = passes, contexts
        if exact is not None:
            self.exact = exact
        # Of each token but the first of a context, in the last call.
        self.losses = torch.empty(0)

    @cached_property
    def exact(self) -> list[torch.Tensor]:
        """Logarithms of what the uncompressed model predicts, for each context."""
        return [self.passes.logits(context, None).log_softmax(-1) for context in self.contexts]

    def __call__(self, caches: Sequence[Cache | None], cuts: Mapping[int, Change] | None = None) -> Row:
        """Perplexity with these caches in place of the model's own, and coders at cuts; and how far predictions diverge from
        those of the uncompressed model, in nats a token: the smaller noise, where perplexity has hardly changed."""
        divergence, losses = 0.0, []
        for context, cache, exact in zip(self.contexts, caches, self.exact):
            found = self.passes.logits(context, cache, cuts).log_softmax(-1)
            follow = context[1:].to(found.device)
            losses.append(torch.nn.functional.nll_loss(found[:-1], follow, reduction="none").double().cpu())
            divergence += (exact.exp() * (exact - found)).sum(-1).mean().item()
        self.losses = torch.cat(losses)
        perplexity = float(np.exp(min(self.losses.mean().item(), 700.0)))
        return {"perplexity": perplexity, "divergence": divergence / len(self.contexts)}
