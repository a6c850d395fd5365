"""A communication hook for DistributedDataParallel that compresses, exchanges and averages buckets of gradients."""

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
    """The state of a rank in the exchange. Made by :func:`register`.

    Attributes:
        sent: bytes of slots that this rank has sent so far.
        raw: bytes of the gradients that it sent.
    """

    def __init__(self, names: dict[int, str], exchange: Exchange) -> None:
        self._names = names
        self._exchange = exchange
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        # One bucket after the other, in the same order on every rank. The backward pass goes on meanwhile, and the next
        # bucket is encoded while one is in flight.
        self._starts = ThreadPoolExecutor(1, thread_name_prefix="tenfold-gradients")
        self._ends = ThreadPoolExecutor(1, thread_name_prefix="tenfold-averages")

    @property
    def sent(self) -> int:
        """Bytes that this rank has sent so far to every other rank."""
        return self._exchange.sent

    @property
    def raw(self) -> int:
        """Bytes of the uncompressed gradients."""
        return self._exchange.raw

    def state_dict(self) -> dict[str, Any]:
        """Returns the residuals of this rank by parameter name. Every rank saves its own in a checkpoint."""
        copies = {name: r.clone() for name, r in self._exchange.residuals.by_name().items()}
        owed = {name: r.clone() for name, r in self._exchange.owed.by_name().items()}
        return {"version": 1, "residuals": copies, "owed": owed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replaces the residuals with those of a checkpoint."""
        if state.get("version") != 1:
            raise ArgumentError("this is not a state of a gradient hook that this version can read")
        unknown = set(state["residuals"]) - set(self._names.values())
        if unknown:
            some = ", ".join(sorted(unknown)[:3])
            raise ArgumentError(f"the state has residuals of parameters that the model lacks: {some}")
        for kept, given in ((self._exchange.residuals, "residuals"), (self._exchange.owed, "owed")):
            kept.clear()
            kept.add(state[given])

    def rescale(self, factor: float) -> None:
        """Multiplies the residuals by a factor. Call it when the loss scale changes by that factor."""
        self._exchange.residuals.scale_(factor)
        self._exchange.owed.scale_(factor)

    def __call__(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Exchanges a bucket (``torch.distributed.GradBucket``) and returns a future of the average."""
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
        enter_device: Callable[[], AbstractContextManager[Any]],
        gradients: torch.Tensor,
        names: Sequence[str],
        sizes: Sequence[int],
    ) -> None:
        with _forward_errors(future), enter_device():
            end = self._exchange.start(gradients, names, sizes)
            self._ends.submit(self._end, future, enter_device, end)

    def _end(
        self,
        future: torch.futures.Future[torch.Tensor],
        enter_device: Callable[[], AbstractContextManager[Any]],
        end: Callable[[], torch.Tensor],
    ) -> None:
        with _forward_errors(future), enter_device():
            future.set_result(end())


@contextmanager
def _forward_errors(future: torch.futures.Future[torch.Tensor]) -> Iterator[None]:
    """Passes any exception to the future that DDP waits for."""
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
        model: a DistributedDataParallel module without a communication hook.
        bits: bits a value of what a rank sends of a bucket; 0.8 to 4 make sense.
        exchange: ``"gather"`` sends each rank's bytes to all. ``"scatter"`` lets each rank average a part of the bucket
            and send the average: less traffic with more than two ranks, but two roundings.
        error_feedback: whether to add the rounding error to the gradients of the next iteration. It takes four bytes a
            parameter. Plain SGD needs it at low rates; AdamW did better without it (docs/eval.md).
        effort: ``"fast"``, ``"balanced"`` or ``"best"``.
        threads: worker threads of the CPU; 0 uses all cores.

    Raises:
        ArgumentError: an argument is invalid, or another rank has other arguments or another version of tenfold.
    """
    group = own_group(model.process_group)
    asked = {"bits": bits, "exchange": exchange, "error_feedback": error_feedback, "effort": effort}
    agree(group, "gradients", asked)
    made = Exchange(group, bits=bits, exchange=exchange, feedback=error_feedback, effort=effort, threads=threads)
    hook = GradientHook({id(p): name for name, p in model.module.named_parameters()}, made)
    model.register_comm_hook(hook, _exchange)
    return hook


# Without annotations: DDP compares them with types, but here they are strings.
def _exchange(state, bucket):  # type: ignore[no-untyped-def]
    return state(bucket)
