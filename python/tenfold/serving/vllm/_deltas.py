"""Weights of a running engine, brought up to date by deltas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._errors import ArgumentError
from .._replica import Replica

if TYPE_CHECKING:
    from vllm.config import ModelConfig


class DeltaWorker:
    """What ``worker_extension_cls="tenfold.serving.vllm.DeltaWorker"`` adds to vLLM's workers.

    ``collective_rpc`` calls it on all of them: ``tenfold_open`` once, ``tenfold_apply`` with each delta. A worker keeps the checkpoint in
    host memory, applies deltas there, and loads it the way vLLM reloads weights: fused, sharded and quantised as the engine has it.
    """

    if TYPE_CHECKING:
        model_config: ModelConfig

        def reload_weights(self, *args: Any, **kwargs: Any) -> None: ...

    _tenfold: Replica | None = None

    def tenfold_open(self, folder: str | None = None) -> str:
        """Reads the checkpoint that deltas will be applied to; returns its version.

        Without a folder it is the one that the engine was started with. One that is stated is loaded into the engine too: that is how an engine
        comes back to a version that the trainer knows.
        """
        self._tenfold = Replica(folder or self.model_config.model)
        if folder is not None:
            self._tenfold_load(self._tenfold)
        return self._tenfold.version

    def tenfold_version(self) -> str | None:
        """The version at hand; None before ``tenfold_open``."""
        return None if self._tenfold is None else self._tenfold.version

    def tenfold_apply(self, update: bytes) -> str:
        """Applies a delta and loads the new weights; returns their version.

        One that does not belong to the version at hand raises WrongBaseError, and the engine goes on as it was.
        """
        replica = self._tenfold
        if replica is None:
            raise ArgumentError("call tenfold_open before the first delta")
        replica.apply(update)
        self._tenfold_load(replica)
        return replica.version

    def _tenfold_load(self, replica: Replica) -> None:
        # All of it, since vLLM processes whole layers: of a fused matrix every part must come.
        self.reload_weights(weights_iterator=iter(replica), is_checkpoint_format=True)
        replica.handed_on()
