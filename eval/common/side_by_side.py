"""A model beside the one that it was made from: perplexity, and divergence between what both predict."""

from __future__ import annotations

import math
from typing import Any

import torch
from tqdm import tqdm
from transformers import PreTrainedModel


def copied(model: PreTrainedModel, device: str) -> Any:
    """A copy of a model on a device."""
    with torch.device("meta"):
        config = model.config.to_dict()
        config.pop("quantization_config", None)
        made = type(model)(type(model.config).from_dict(config))
    made.load_state_dict({name: one.detach().clone() for name, one in model.state_dict().items()}, assign=True)
    made.tie_weights()
    for name, buffer in model.named_buffers():
        made.get_submodule(name.rpartition(".")[0]).register_buffer(name.rpartition(".")[2], buffer.clone(), persistent=False)
    return made.eval().to(device)


def compare(raw: Any, model: Any, contexts: torch.Tensor, device: str) -> dict[str, float]:
    """Perplexity of a model on contexts, and its divergence from the other, in nats a token."""
    loss, divergence, count = 0.0, 0.0, 0
    together = 4 if torch.device(device).type == "cuda" else 1
    with torch.inference_mode(), tqdm(total=len(contexts), unit="context", leave=False) as bar:
        for some in contexts.split(together):
            ids = some.to(device)
            was, now = (each(ids, use_cache=False).logits[:, :-1].float().log_softmax(-1) for each in (raw, model))
            loss -= float(now.gather(2, ids[:, 1:, None]).double().sum())
            divergence += float((was.exp() * (was - now)).sum(-1).double().sum())
            count += some.numel() - len(some)
            bar.update(len(some))
    return {"perplexity": math.exp(min(loss / count, 700.0)), "divergence": divergence / count}
