"""Deltas of a model in training, collected behind its optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from .. import _native
from .._errors import ArgumentError, DtypeError
from . import _delta
from ._codec import decode, encode


class DeltaTracker:
    """Collects what training steps change in a model, for replicas that follow it, bit for bit.

    A delta needs the old values, which a step overwrites. Two ways spare a second copy of the model:

    **Master weights.** Where an optimizer steps float32 masters of bf16 weights, the model has its old weights until the masters
    are cast. State ``masters`` and leave the cast to the tracker: after each step it makes the delta of one tensor after the other and
    writes the new values. It takes the memory of one tensor. Each step gives a delta of its own.

    **Kept compressed.** Otherwise the last version that was collected is kept in host memory, compressed without loss: about two thirds of
    bf16 weights. Only tensors that ever get a gradient are kept, from the first step that changes them on, and buffers. One delta covers all
    steps between two calls of :meth:`collect`.

    Args:
        model: the module. Tensors are named as in its ``state_dict()``.
        optimizers: the optimizer, or all of them.
        masters: by the names of the model's tensors, the masters that the optimizers step.
        threads: worker threads of the CPU; 0 uses all cores.

    >>> import torch, tenfold
    >>> model = torch.nn.Linear(64, 64).to(torch.bfloat16)
    >>> replica = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> tracker = tenfold.torch.DeltaTracker(model, optimizer)
    >>> for _ in range(2):
    ...     model(torch.ones(1, 64, dtype=torch.bfloat16)).square().sum().backward()
    ...     optimizer.step()
    >>> for blob in tracker.collect():
    ...     _ = tenfold.delta.apply_(replica, blob)
    >>> all(torch.equal(tensor, replica[name]) for name, tensor in model.state_dict().items())
    True
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: torch.optim.Optimizer | Iterable[torch.optim.Optimizer],
        *,
        masters: Mapping[str, torch.Tensor] | None = None,
        threads: int = 0,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise DtypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
        if threads < 0:
            raise ArgumentError("threads must not be negative")
        self._threads = threads
        self._model = model
        state = _tensors_of(model)
        # The names of each tensor; tied ones have several, and the first stands for them.
        self._aliases: dict[str, list[str]] = {}
        first: dict[tuple[Any, ...], str] = {}
        for name, tensor in state.items():
            self._aliases.setdefault(first.setdefault(_delta.memory(tensor), name), []).append(name)
        self._tensors = {name: state[name] for name in self._aliases}
        self._names = {id(state[alias]): name for name, aliases in self._aliases.items() for alias in aliases}
        self._masters = self._find_masters(masters or {})
        self._prints: dict[str, str] = {}
        for name, tensor in self._tensors.items():
            self._prints |= dict.fromkeys(self._aliases[name], _delta.fingerprint(tensor))
        self._versions = {name: _version(tensor) for name, tensor in self._tensors.items()}
        self._kept: dict[str, torch.Tensor] = {}
        self._stepped: set[str] = set()
        self._finished: list[bytes] = []
        for name, tensor in self._tensors.items():
            # Buffers change without an optimizer.
            if not isinstance(tensor, torch.nn.Parameter):
                self._keep(name)
        each = [optimizers] if isinstance(optimizers, torch.optim.Optimizer) else list(optimizers)
        self._hooks = [one.register_step_pre_hook(self._before) for one in each]
        self._hooks += [one.register_step_post_hook(self._after) for one in each]

    def _find_masters(self, masters: Mapping[str, torch.Tensor]) -> dict[int, str]:
        """Names of the model's tensors, by the identity of their masters."""
        found = {}
        for name, master in masters.items():
            tensor = self._tensors.get(name)
            if tensor is None:
                raise ArgumentError(f"masters has {name!r}, which is no tensor of the model, or another name of one")
            if master.shape != tensor.shape or not master.dtype.is_floating_point:
                raise ArgumentError(f"the master of {name!r} must be a float tensor of shape {tuple(tensor.shape)}")
            if _delta.memory(master) == _delta.memory(tensor):
                raise ArgumentError(f"the master of {name!r} is the tensor itself; leave it out")
            found[id(master)] = name
        return found

    def _keep(self, name: str) -> None:
        """Keeps the current version of a tensor."""
        tensor = self._tensors[name].detach().contiguous()
        self._kept[name] = encode(tensor, lossless=True, effort="fast", threads=self._threads).cpu()

    def _stepping(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
        """The tensors that a step changes. A closure may make gradients within the step: then all may."""
        closure = (args[0] if args else kwargs.get("closure")) is not None
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if closure or parameter.grad is not None:
                    yield parameter

    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        for parameter in self._stepping(optimizer, args, kwargs):
            name = self._names.get(id(parameter))
            if name is not None:
                self._stepped.add(name)
                if name not in self._kept:
                    self._keep(name)

    def _after(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        cast = []
        for parameter in self._stepping(optimizer, args, kwargs):
            name = self._masters.get(id(parameter))
            if name is not None:
                cast.append((name, parameter))
        if cast:
            self._finish(self._cast(cast))

    def _cast(self, masters: list[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, bytes]]:
        """Brings tensors up to date with their masters; yields what that changes."""
        for name, master in masters:
            tensor = self._tensors[name].detach()
            new = master.detach().to(tensor.dtype)
            yield name, _delta.make(tensor, new, self._threads)
            tensor.copy_(new)

    def _look(self) -> None:
        """Finds what changed behind the back of the optimizers: that must be kept, or its old values are gone."""
        state = _tensors_of(self._model)
        cast = set(self._masters.values())
        for name, tensor in self._tensors.items():
            now = state.get(name)
            if not isinstance(tensor, torch.nn.Parameter) and now is not None:
                self._tensors[name] = now
            elif now is not tensor:
                raise ArgumentError(f"the model has another tensor {name!r} than when the tracker was made; make a new one")
            elif name not in cast and name not in self._stepped and _version(tensor) != self._versions[name]:
                if name not in self._kept:
                    raise ArgumentError(
                        f"tensor {name!r} was changed by something else than the optimizers of the tracker, and its old values are gone; "
                        "state all optimizers, or send the whole model and make a new tracker"
                    )
                self._stepped.add(name)

    def _compare(self) -> Iterator[tuple[str, bytes]]:
        """What changed in the tensors that are kept; keeps the new versions."""
        for name in list(self._kept):
            tensor = self._tensors[name]
            if isinstance(tensor, torch.nn.Parameter) and name not in self._stepped:
                continue
            base = decode(self._kept[name], threads=self._threads)
            blob = _delta.make(base, tensor, self._threads)
            if _native.delta_inspect(blob).changed:
                self._keep(name)
            self._versions[name] = _version(tensor)
            yield name, blob
        self._stepped.clear()

    def _finish(self, changes: Iterable[tuple[str, bytes]]) -> None:
        """Makes one delta of those of tensors."""
        blobs, prints = [], dict(self._prints)
        for name, blob in changes:
            info = _native.delta_inspect(blob)
            if info.changed:
                blobs += [(alias, blob) for alias in self._aliases[name]]
                prints |= dict.fromkeys(self._aliases[name], info.result)
        if blobs:
            self._finished.append(_native.delta_collect(self._prints, blobs)[0])
            self._prints = prints

    def collect(self) -> list[bytes]:
        """Returns the deltas since the last call, or since the tracker was made: none if nothing changed.

        They are applied in this order, each with :func:`tenfold.delta.apply_`.
        """
        self._look()
        self._finish(self._compare())
        finished, self._finished = self._finished, []
        return finished

    @property
    def version(self) -> str:
        """The fingerprint of what the last delta makes: :func:`tenfold.delta.fingerprint` of a replica that has them all."""
        return _native.delta_model_fingerprint(self._prints)

    @property
    def kept_bytes(self) -> int:
        """Bytes of host memory that versions take."""
        return sum(blob.nbytes for blob in self._kept.values())

    def close(self) -> None:
        """Removes the hooks and forgets what was kept."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._kept, self._stepped = [], {}, set()

    def __enter__(self) -> DeltaTracker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _tensors_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a model's state dict, themselves. Modules may store other things there."""
    state = model.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}


def _version(tensor: torch.Tensor) -> int:
    """How often a tensor was changed in place, as autograd counts."""
    return 0 if tensor.is_inference() else tensor._version
