"""Weights of a running engine, brought up to date by deltas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ..._errors import ArgumentError
from .._replica import Replica

# Names of what is no tensor of the model.
BASE, DELTA = "tenfold.base", "tenfold.delta"


def load_delta(model: Any, named_tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """A loader for SGLang's ``update_weights_from_tensor``, named in ``custom_weight_loader`` and as ``load_format``.

    ``tenfold.base`` is the path of a checkpoint, as UTF-8 bytes in a tensor. It is read into host memory and loaded into the model: before the
    first delta, and whenever the engine is to come back to a version that the trainer knows. ``tenfold.delta`` is the bytes of a delta; what
    it changes is loaded into the model. A delta that does not belong to the version at hand raises WrongBaseError, and nothing changes.
    """
    for name, content in named_tensors:
        data = content.cpu().numpy().tobytes()
        if name == BASE:
            replica = Replica(data.decode())
            model.load_weights(list(replica))
            model._tenfold_replica = replica
            continue
        if name != DELTA:
            raise ArgumentError(f"{name!r} is neither {BASE!r} nor {DELTA!r}; load tensors with another load_format")
        if getattr(model, "_tenfold_replica", None) is None:
            raise ArgumentError(f"send {BASE!r} before the first {DELTA!r}")
        replica = model._tenfold_replica
        replica.apply(data)
        # With what an earlier call failed to load.
        model.load_weights(replica.changed())
        replica.handed_on()
