"""The emulator in place of a CUDA device, for tests of plug-ins: to it the CPU's tensors are the device's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tenfold import _native
from tenfold.serving import _streams
from tenfold.torch import _device

EMULATED = getattr(_native.CudaDevice, "emulated", None)
LAYERS, HEADS, COLUMNS = 4, 2, 16


class OnlyStream:
    """The emulator's stream, which has done everything as soon as it is asked to."""

    cuda_stream = 0

    def __init__(self) -> None:
        self.waits = 0

    def wait_stream(self, other: Any) -> None:
        """There is no other."""

    def wait_event(self, event: Any) -> None:
        """It is over."""

    def record_event(self) -> OnlyStream:
        """Its own events: what is asked of them, it answers."""
        return self

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        self.waits += 1


class EmulatedStreams:
    """As a plug-in's streams, where everything is done at once."""

    def __init__(self, device: torch.device) -> None:
        self.loads, self.saves = OnlyStream(), OnlyStream()

    def mark(self) -> OnlyStream:
        return OnlyStream()


def emulate(patch: pytest.MonkeyPatch) -> None:
    native, stream = EMULATED(1 << 32), OnlyStream()
    patch.setattr(_device, "is_ours", lambda device: device.type == "cpu")
    patch.setattr(_device, "native", lambda device: native)
    patch.setattr(_device, "stream", lambda device: stream)
    patch.setattr(_device, "multiprocessors", lambda device: 4)
    patch.setattr(_device, "sides", lambda device, count: [stream] * count)
    patch.setattr(_device, "pinned", lambda *shape: torch.zeros(shape, dtype=torch.int64))
    patch.setattr(_device, "share", lambda tensor, stream: None)
    patch.setattr(_device, "preserve_current", lambda device: nullcontext())
    patch.setattr(_device, "on", lambda stream: nullcontext())
    patch.setattr(_device, "is_capturing", lambda: False)
    patch.setattr(_streams, "Streams", EmulatedStreams)
    patch.setattr(_device, "staging", lambda length: torch.empty(length, dtype=torch.uint8))


def each(kind: str, patch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """A device of a kind, or a skipped test."""
    if kind == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
        yield torch.device("cuda", 0)
        return
    if EMULATED is None:
        pytest.skip("a build without the feature emulator")
    emulate(patch)
    yield torch.device("cpu")


def rows(tokens: int, seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Keys and values of all layers, tokens × columns, which a few numbers a token make, and a little noise."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(6, LAYERS, HEADS * COLUMNS, generator=torch.Generator().manual_seed(99))
    sides = []
    for _ in range(2):
        few = torch.randn(tokens, 6, generator=generator)
        noise = 0.05 * torch.randn(tokens, LAYERS, HEADS * COLUMNS, generator=generator)
        both = (torch.einsum("tk,klc->tlc", few, mix) + noise).bfloat16()
        sides.append([both[:, layer].contiguous() for layer in range(LAYERS)])
    return sides[0], sides[1]


def fit_bases(folder: Path, seed: int = 1, rope: str = "base=10000,head=16,pairing=halves", head: int = 16) -> Path:
    """A file of bases for such rows, of heads of so many columns."""
    keys, values = rows(2000, seed)
    kind = "k" if rope == "none" else "k_before_rope"
    named = {f"layers.{layer}.{kind}": one for layer, one in enumerate(keys)}
    save_file(named | {f"layers.{layer}.v": one for layer, one in enumerate(values)}, folder / "captured.safetensors")
    path = folder / f"model-{seed}.basis"
    command = ["basis", "fit", folder / "captured.safetensors", "--out", path, "--group", "2", "--rope", rope, "--head-dim", str(head)]
    assert _native.main(["tenfold", *map(str, command)]) == 0
    return path
