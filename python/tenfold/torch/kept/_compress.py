"""``compress_module`` and ``decompress_module``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from ... import _native
from ..._codec import encode_options
from ..._errors import ArgumentError, DataError, DtypeError
from ..._progress import bar
from .. import _cuda
from .._codec import encode_with
from .._tensors import dtype_of
from ._choose import choose
from ._engines import Checksums
from ._held import Held, Site, Stage, restore
from ._layers import Layers
from ._passes import Passes, Wanted

# Values a lane. A device that encodes a weight by itself takes shorter lanes, to be quick with it alone; but a layer's weights are
# decoded together, which keeps a device busy anyway.
LANE_VALUES = 2048
# Where a module keeps what is needed to undo it.
_STATE = "_tenfold_kept"


class _State:
    """What ``decompress_module`` needs."""

    def __init__(self, layers: Layers, trainable: set[str], hook: Any) -> None:
        self.layers, self.trainable, self.hook = layers, trainable, hook


def compress_module(
    module: nn.Module,
    *,
    bits: float | None = None,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    layers: Iterable[str] = (),
    buffers: int = 2,
    prefetch: bool = True,
    offload: bool = False,
    graph: bool = False,
    multiply: bool = True,
    checksums: Checksums = "once",
    progress: bool | Callable[[int, int], object] = False,
    **options: Any,
) -> nn.Module:
    """Compresses the large weights of any module, in place, and decodes them when they are used.

    Blobs take the place of the weights, on the weights' device: as parameters of dtype uint8, in ``state_dict`` too. The
    weights of a layer are decoded together just before the layer runs, into one of two buffers that all layers share. The
    first pass shows the order of the layers; from then on the next one is decoded while one computes, by a thread on a
    CPU and on a stream of its own on a CUDA device. The module computes what it would with the decoded weights, bit for bit,
    without gradients.

    A layer is the outermost member of a ``ModuleList``; what is in none is decoded in the outermost module that holds no
    layer. Weights must be used by the layer that they belong to; ``exclude`` others, and those of the
    module itself are left as they are.

    Args:
        module: the module; it is changed, and returned.
        bits: bits a value; 2.5 if no goal is stated.
        include: patterns of names of weights to compress even if they have fewer than 4096 values or two dimensions.
        exclude: patterns of names of weights to leave as they are.
        layers: patterns of names of modules to decode as one, such as ``"down_blocks.*.resnets.*"``.
        buffers: decoded layers in memory at a time, 1 to 16.
        prefetch: whether to decode ahead; needs two buffers.
        offload: whether the blobs lie in pinned host memory, from where a CUDA device fetches each layer ahead of its turn.
        graph: whether calls that are repeated on a CUDA device (with inputs of the same shapes, the same numbers, and caches
            at the same place) are captured as a CUDA graph and replayed.
        multiply: whether linear layers of 16-bit floats that work on one vector on a CUDA device use a kernel of tenfold, which
            leaves more of the device to decoding, and RMS norms take one kernel. Sums are added up in another order, so the last
            bits may differ.
        checksums: whether a device checks the checksums of tiles in every pass (True), in none, or once, when it decodes a layer for the
            first time. In later passes it still finds what does not decode.
        progress: True for a tqdm bar, or a function that is called with the bytes done and the total.
        options: another goal, ``effort``, ``threads``, ``lane_values`` and ``prepare``, as in :func:`tenfold.torch.encode`.

    >>> import torch, tenfold.torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
    >>> x = torch.randn(4, 256)
    >>> with torch.no_grad():
    ...     y = net(x)
    ...     tenfold.torch.compress_module(net, lossless=True)(x).equal(y)
    True
    >>> net[0].weight.dtype
    torch.uint8
    >>> tenfold.torch.decompress_module(net)[0].weight.dtype
    torch.float32
    """
    if not isinstance(module, nn.Module):
        raise DtypeError(f"compress_module takes a torch.nn.Module, not a {type(module).__name__}")
    if any(isinstance(one.__dict__.get("forward"), Passes) for one in module.modules()):
        raise ArgumentError("the module, or a part of it, is compressed already; call tenfold.torch.decompress_module first")
    check_buffers(buffers, prefetch)
    check_checksums(checksums)
    for name in ("importance", "residual"):
        if name in options:
            raise ArgumentError(f"{name} is stated tensor by tensor; compress_module does not take it")
    options = {"lane_values": LANE_VALUES, **options}
    how = encode_options(bits=bits, **options)
    plain = how if "prepare" in options else encode_options(bits=bits, **options, prepare="none")
    chosen = choose(module, include, exclude, layers)
    trainable = {site.name for same, _ in chosen for site in same if site.tensor.requires_grad}
    held: list[Held] = []
    by_part: dict[str, list[Held]] = {}
    total, done = sum(same[0].tensor.nbytes for same, _ in chosen), 0
    try:
        with bar(progress, "compress") as tell:
            while chosen:
                # Popped, so that a weight is freed as soon as its blob is there.
                same, parts = chosen.pop(0)
                done += same[0].tensor.nbytes
                new = hold(same, how, plain)
                held += new
                for one, part in zip(new, parts, strict=True):
                    by_part.setdefault(part, []).append(one)
                if tell is not None:
                    tell(done, total)
        stages = [Stage(part, tuple(members)) for part, members in by_part.items()]
        wanted = _any_call if graph else None
        keep(
            module,
            stages,
            buffers=buffers,
            prefetch=prefetch,
            offload=offload,
            wanted=wanted,
            trainable=trainable,
            multiply=multiply,
            checksums=checksums,
        )
    except BaseException:
        restore(held)
        _mark_trainable(held, trainable)
        raise
    return module


def hold(same: list[Site], how: _native.EncodeOptions, plain: _native.EncodeOptions) -> list[Held]:
    """Puts a blob in the place of a weight, in all of its places.

    Args:
        same: places of one weight.
        how: options of encoding.
        plain: options without transforms, for a weight that a device could not decode without waiting otherwise.
    """
    weight = same[0].tensor.detach().contiguous()
    blob = encode_with(weight, how)
    if not _cuda.can_queue(_cuda.inspect(blob)):
        blob = encode_with(weight, plain)
    parameter = nn.Parameter(blob, requires_grad=False)
    for site in same:
        site.put(parameter)
    return [
        Held(site.module, site.attribute, site.name, tuple(weight.shape), weight.dtype, weight.dtype) for site in same
    ]


def keep(
    module: nn.Module,
    stages: list[Stage],
    *,
    buffers: int = 2,
    prefetch: bool = True,
    offload: bool = False,
    wanted: Wanted | None = None,
    trainable: Iterable[str] = (),
    multiply: bool = True,
    checksums: Checksums = "once",
) -> Layers:
    """Sees to the decoding of weights whose blobs are in place."""
    layers = Layers(
        module,
        stages,
        buffers=buffers,
        prefetch=prefetch,
        pinned=offload,
        wanted=wanted,
        multiply=multiply,
        checksums=checksums,
    )
    hook = module.register_load_state_dict_pre_hook(_take_blobs)  # type: ignore[no-untyped-call]
    module.__dict__[_STATE] = _State(layers, set(trainable), hook)
    return layers


def decompress_module(module: nn.Module) -> nn.Module:
    """Undoes :func:`compress_module`: decodes all weights, which stay decoded.

    Weights that required gradients do so again. They are those that were encoded if ``lossless`` was the goal.
    """
    state = module.__dict__.pop(_STATE, None) if isinstance(module, nn.Module) else None
    if state is None:
        raise ArgumentError("compress_module has not compressed this module; for a model of transformers call model.dequantize()")
    held = state.layers.held
    blobs = {id(one.blob()) for one in held}
    device = next((one.device for one in module.parameters() if id(one) not in blobs), None)
    state.hook.remove()
    state.layers.remove()
    restore(held, device)
    _mark_trainable(held, state.trainable)
    return module


def kept(module: nn.Module) -> Layers:
    """The parts of a module that :func:`compress_module` compressed."""
    layers: Layers = module.__dict__[_STATE].layers
    return layers


def _any_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return True


def check_buffers(buffers: object, prefetch: object) -> None:
    """Refuses numbers of buffers that cannot work."""
    if not isinstance(prefetch, bool):
        raise DtypeError("prefetch must be True or False")
    if not isinstance(buffers, int) or isinstance(buffers, bool) or not 1 <= buffers <= 16:
        raise ArgumentError(f"buffers must be a number from 1 to 16, not {buffers!r}")
    if prefetch and buffers == 1:
        raise ArgumentError("one buffer leaves no room for the next layer; pass buffers=2 or prefetch=False")


def check_checksums(checksums: object) -> None:
    """Refuses what says neither whether nor when."""
    if not (isinstance(checksums, bool) or checksums == "once"):
        raise ArgumentError(f'checksums must be True, False or "once", not {checksums!r}')


def _mark_trainable(held: Iterable[Held], names: set[str]) -> None:
    for one in held:
        one.blob().requires_grad_(one.name in names)


def _take_blobs(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Before ``load_state_dict``: makes room for blobs of other lengths, if they are of the same tensors."""
    layers = kept(module)
    for one in layers.held:
        new, old = state.get(prefix + one.name), one.blob()
        if not isinstance(new, torch.Tensor):
            continue
        if new.dtype != torch.uint8 or new.ndim != 1:
            raise ArgumentError(
                f"{one.name} stays compressed here, but the state dict has values; call tenfold.torch.decompress_module "
                "before load_state_dict"
            )
        info = _cuda.inspect(new)
        if info.shape != one.shape or dtype_of(info.dtype) != one.stored:
            raise DataError(
                f"{one.name} is {one.stored} {one.shape}, but the blob in the state dict {info.dtype} {info.shape}; it is of "
                "another module"
            )
        if new.shape != old.shape:
            layers.make_room(one, new.numel())
