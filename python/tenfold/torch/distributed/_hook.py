"""A communication hook of DistributedDataParallel: buckets of gradients, compressed, exchanged and averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from ..._errors import ArgumentError
from ._agree import agree, own_group
from ._exchange import Exchange


class GradientHook:
    """What a rank knows of the exchange. Made by :func:`register`.

    Attributes:
        sent: bytes that this rank has sent so far, as slots.
        raw: bytes of the gradients that it sent.
    """

    def __init__(self, names: dict[int, str], exchange: Exchange) -> None:
        self._names = names
        self._exchange = exchange
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        # One bucket after the other: every rank has them in the same order. Backward goes on meanwhile, and while one is on its
        # way the next is encoded.
        self._starts = ThreadPoolExecutor(1, thread_name_prefix="tenfold-gradients")
        self._ends = ThreadPoolExecutor(1, thread_name_prefix="tenfold-averages")

    @property
    def sent(self) -> int:
        """Bytes that this rank has sent so far to each other rank."""
        return self._exchange.sent

    @property
    def raw(self) -> int:
        """Bytes of the gradients that were in them."""
        return self._exchange.raw

    def state_dict(self) -> dict[str, Any]:
        """Residuals of this rank by the names of parameters: every rank puts its own into a checkpoint."""
        copies = {name: r.clone() for name, r in self._exchange.residuals.by_name().items()}
        owed = {name: r.clone() for name, r in self._exchange.owed.by_name().items()}
        return {"version": 1, "residuals": copies, "owed": owed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes residuals of a checkpoint in place of those that are there."""
        if state.get("version") != 1:
            raise ArgumentError("this is no state of a gradient hook that this version knows")
        unknown = set(state["residuals"]) - set(self._names.values())
        if unknown:
            some = ", ".join(sorted(unknown)[:3])
            raise ArgumentError(f"the state has residuals of parameters that the model lacks: {some}")
        for kept, given in ((self._exchange.residuals, "residuals"), (self._exchange.owed, "owed")):
            kept.clear()
            kept.take(state[given])

    def rescale(self, factor: float) -> None:
        """Multiplies residuals, where the scale of the loss was changed by a factor."""
        self._exchange.residuals.scale_(factor)
        self._exchange.owed.scale_(factor)

    def __call__(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Exchanges a bucket (``torch.distributed.GradBucket``); the future has the average."""
        gradients = bucket.buffer()
        names = [self._names[id(p)] for p in bucket.parameters()]
        sizes = [g.numel() for g in bucket.gradients()]
        device = gradients.device
        if not gradients.is_cuda:
            future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            self._starts.submit(self._start, future, nullcontext, gradients, names, sizes)
            return future
        future = torch.futures.Future(devices=[device])
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream = self._streams[device]
        stream.wait_stream(torch.cuda.current_stream(device))
        gradients.record_stream(stream)
        self._starts.submit(self._start, future, lambda: torch.cuda.stream(stream), gradients, names, sizes)
        return future

    def _start(
        self,
        future: torch.futures.Future[torch.Tensor],
        entered: Callable[[], AbstractContextManager[Any]],
        gradients: torch.Tensor,
        names: Sequence[str],
        sizes: Sequence[int],
    ) -> None:
        with _told(future), entered():
            end = self._exchange.start(gradients, names, sizes)
            self._ends.submit(self._end, future, entered, end)

    def _end(
        self,
        future: torch.futures.Future[torch.Tensor],
        entered: Callable[[], AbstractContextManager[Any]],
        end: Callable[[], torch.Tensor],
    ) -> None:
        with _told(future), entered():
            future.set_result(end())


@contextmanager
def _told(future: torch.futures.Future[torch.Tensor]) -> Iterator[None]:
    """Whatever goes wrong in here, DDP hears of it."""
    try:
        yield
    except BaseException as error:  # noqa: BLE001 - a thread of its own has nobody else to tell
        future.set_exception(error)  # type: ignore[arg-type]


def register(
    model: torch.nn.parallel.DistributedDataParallel,
    *,
    bits: float = 2.6,
    exchange: str = "gather",
    error_feedback: bool = False,
    effort: str = "fast",
    threads: int = 0,
) -> GradientHook:
    """Compresses the gradients that a model's ranks exchange. All ranks call it, with the same arguments.

    Args:
        model: wrapped in DistributedDataParallel, without a hook so far.
        bits: bits a value of what a rank sends of a bucket; 0.8 to 4 make sense.
        exchange: ``"gather"``: each rank's bytes go to all. ``"scatter"``: each rank averages a part of the bucket and sends that
            on, which takes less of the link where there are more than two ranks, and rounds twice.
        error_feedback: whether what rounding leaves is added to the next step's gradients; it takes four bytes a parameter.
            Plain SGD needs it at low rates; AdamW was better off without, see docs/eval.md.
        effort: ``"fast"``, ``"balanced"`` or ``"best"``.
        threads: worker threads of the CPU; 0 takes all cores.

    Raises:
        ArgumentError: an argument cannot work, or another rank has other arguments or another version of tenfold.
    """
    group = own_group(model.process_group)
    asked = {"bits": bits, "exchange": exchange, "error_feedback": error_feedback, "effort": effort}
    agree(group, "gradients", asked)
    made = Exchange(group, bits=bits, exchange=exchange, feedback=error_feedback, effort=effort, threads=threads)
    hook = GradientHook({id(p): name for name, p in model.module.named_parameters()}, made)
    model.register_comm_hook(hook, _exchange)
    return hook


# Without annotations: DDP compares them with types, and here they are text.
def _exchange(state, bucket):  # type: ignore[no-untyped-def]
    return state(bucket)
