"""Tensors on a device: encoded and decoded there, by a CUDA device or by the emulator in its place.

The emulator is in builds with the feature of that name; to it the CPU's tensors are the device's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import tenfold
import tenfold.torch
import torch
from conftest import FLOATS, INTEGERS, same_bits, values_of
from tenfold.torch import _device, _tensors, _verdicts

EMULATED = getattr(tenfold._native.CudaDevice, "emulated", None)


class NoEvent:
    """What is over when it is asked about."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Nothing is left to wait for."""


class OnlyStream:
    """The emulator's stream, which has done everything as soon as it is asked to."""

    cuda_stream = 0

    def wait_stream(self, other: Any) -> None:
        """There is no other."""

    def wait_event(self, event: Any) -> None:
        """It is over."""

    def record_event(self) -> NoEvent:
        return NoEvent()

    def synchronize(self) -> None:
        """Nothing is left to wait for."""


def emulate(patch: pytest.MonkeyPatch) -> None:
    native = EMULATED(1 << 32)
    stream = OnlyStream()
    patch.setattr(_device, "is_ours", lambda device: device.type == "cpu")
    patch.setattr(_device, "native", lambda device: native)
    patch.setattr(_device, "stream", lambda device: stream)
    patch.setattr(_device, "multiprocessors", lambda device: 4)
    patch.setattr(_device, "sides", lambda device, count: [stream] * count)
    patch.setattr(_device, "share", lambda tensor, stream: None)
    patch.setattr(_device, "preserve_current", lambda device: nullcontext())
    patch.setattr(_device, "on", lambda stream: nullcontext())
    patch.setattr(_device, "is_capturing", lambda: False)
    # Models of other tests may still be watched.
    patch.setattr(_device, "synchronize", lambda device: None)
    patch.setattr(_device, "upload", lambda blob, device: _tensors.from_bytes(bytes(blob)))


def each(kind: str, patch: pytest.MonkeyPatch, emulate: Callable[[pytest.MonkeyPatch], None]) -> Iterator[torch.device]:
    """A device of a kind, or a skipped test; in the end nothing may have gone wrong there."""
    if kind == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
        yield torch.device("cuda", 0)
    else:
        if EMULATED is None:
            pytest.skip("a build without the feature emulator")
        patch.setattr(_verdicts, "_of_stream", {})
        emulate(patch)
        yield torch.device("cpu")
    tenfold.torch.check()


@pytest.fixture(params=["emulator", "cuda"])
def device(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    yield from each(request.param, monkeypatch, emulate)


def on_host(x: torch.Tensor, **options: Any) -> bytes:
    """What the CPU makes of it; by numpy's way, which no test replaces."""
    raw = _tensors.host_bytes(x.cpu()).view({1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}[x.element_size()])
    return tenfold.encode(raw.reshape(tuple(x.shape)), dtype=_tensors.name_of(x.dtype), **options)


def decoded_on_host(blob: bytes, like: torch.Tensor) -> torch.Tensor:
    raw = tenfold.decode(blob, dtype="raw")
    return _tensors.from_bytes(raw.tobytes()).view(like.dtype).reshape(raw.shape)


def on(device: torch.device, blob: bytes) -> torch.Tensor:
    return _tensors.from_bytes(blob).to(device)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_lossless_both_ways(device: torch.device, dtype: torch.dtype) -> None:
    x = values_of(dtype, 33, 65).to(device)
    blob = tenfold.torch.encode(x, lossless=True)
    assert blob.dtype == torch.uint8 and blob.device == device
    assert same_bits(decoded_on_host(blob.cpu().numpy().tobytes(), x), x.cpu())
    assert same_bits(tenfold.torch.decode(blob), x)
    out = torch.zeros_like(x)
    assert tenfold.torch.decode(blob, out=out) is out
    assert same_bits(out, x)
    tenfold.torch.check()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_lossy_blobs_decode_as_on_the_cpu(device: torch.device, dtype: torch.dtype) -> None:
    x = values_of(dtype, 64, 96)
    blob = on_host(x, bits=3)
    expected = decoded_on_host(blob, x).to(device)
    assert same_bits(tenfold.torch.decode(on(device, blob), out=torch.empty_like(expected)), expected)
    assert same_bits(tenfold.torch.decode(blob, device=_stated(device)), expected)
    assert same_bits(tenfold.torch.decode(on(device, blob), shape=(64, 96), dtype=dtype), expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("how", [{"importance": range(1, 97)}, {"prepare": "hadamard+delta"}], ids=["weights", "others"])
def test_blobs_with_steps_decode_as_on_the_cpu(device: torch.device, dtype: torch.dtype, how: dict[str, Any]) -> None:
    x = values_of(dtype, 64, 96)
    blob = on_host(x, bits=3, **how)
    expected = decoded_on_host(blob, x).to(device)
    assert tenfold.inspect(blob).transforms
    for found in (
        tenfold.torch.decode(on(device, blob)),
        tenfold.torch.decode(blob, device=_stated(device)),
        tenfold.torch.decode(blob, out=torch.empty_like(expected)),
    ):
        assert found.device == device and same_bits(found, expected)
    wide = tenfold.torch.decode(on(device, blob), dtype=torch.float32)
    assert wide.dtype == torch.float32
    # A device makes f32 of working values straight away.
    off = (wide.nan_to_num() - expected.float().nan_to_num()).abs()
    assert bool((off <= expected.float().nan_to_num().abs() * 0.13 + 1e-6).all())
    outs = [torch.empty_like(expected)]
    tenfold.torch.decode_many([blob], outs)
    assert same_bits(outs[0], expected)


def test_weights_are_decoded_where_nobody_waits(device: torch.device) -> None:
    blob = on(device, on_host(torch.randn(64, 96), bits=3, importance=range(1, 97)))
    expected = tenfold.torch.decode(blob.cpu())
    out = torch.empty(64, 96, device=device)
    tenfold.torch.decode(blob, out=out)
    tenfold.torch.check()
    assert same_bits(out.cpu(), expected)
    out.zero_()
    tenfold.torch.Decoder([blob], [out])()
    tenfold.torch.check()
    assert same_bits(out.cpu(), expected)
    turned = on(device, on_host(torch.randn(64, 96), bits=3, prepare="hadamard"))
    with pytest.raises(tenfold.UnsupportedError, match="Hadamard"):
        tenfold.torch.Decoder([turned], [out])


def test_steps_are_encoded_on_the_device(device: torch.device) -> None:
    x = torch.randn(64, 96)
    for how, steps in (
        ({"importance": range(1, 97)}, ["column weights"]),
        ({"prepare": "hadamard:32+delta:4"}, ["Hadamard", "delta"]),
    ):
        blob = tenfold.torch.encode(x.to(device), step=0.05, effort="fast", **how)
        assert blob.device == device
        info = tenfold.inspect(blob.cpu().numpy())
        assert list(info.transforms) == steps
        there = tenfold.torch.decode(blob.cpu())
        here = tenfold.torch.decode(on_host(x, step=0.05, effort="fast", **how))
        error = [float((x - y).square().mean()) for y in (there, here)]
        assert error[0] <= error[1] * 1.2
    exact = tenfold.torch.encode(x.to(device), lossless=True, prepare="hadamard")
    assert not tenfold.inspect(exact.cpu().numpy()).transforms
    shifted = (x + torch.arange(96) % 7).to(device)
    for how in ({"prepare": "auto"}, {"effort": "balanced"}):
        chosen = tenfold.torch.encode(shifted, bits=3, **how)
        assert "means" in tenfold.inspect(chosen.cpu().numpy()).transforms
        assert float((tenfold.torch.decode(chosen) - shifted).square().mean()) < 0.05
    x[3, 3] = torch.nan
    there = tenfold.torch.decode(tenfold.torch.encode(x.to(device), bits=3, importance=range(1, 97)))
    assert there.isnan().nonzero().tolist() == [[3, 3]]


def _stated(device: torch.device) -> str:
    return str(device)


@pytest.mark.parametrize("goal", [{"bits": 2.5}, {"nmse": 1e-2}, {"max_error": 0.1}, {"ratio": 8}, {"step": 0.2}], ids=str)
def test_goals_are_met(device: torch.device, goal: dict[str, float]) -> None:
    x = torch.randn(96, 128).to(torch.bfloat16).to(device)
    blob = tenfold.torch.encode(x, effort="fast", **goal)
    y = tenfold.torch.decode(blob)
    error = (y.float() - x.float()).abs()
    match next(iter(goal.items())):
        case ("bits", bits):
            assert blob.numel() * 8 / x.numel() == pytest.approx(bits, rel=0.05)
        case ("ratio", ratio):
            assert x.nbytes / blob.numel() == pytest.approx(ratio, rel=0.05)
        case ("nmse", nmse):
            assert float((error**2).mean() / x.float().var()) <= nmse
        case ("max_error", most):
            assert float(error.max()) <= most
    assert error.max() > 0
    assert tenfold.inspect(blob.cpu().numpy()).codec == "lossy"


def test_where_a_lossless_blob_is_smaller_it_is_made(device: torch.device) -> None:
    x = torch.zeros(64, 64, device=device)
    assert tenfold.inspect(tenfold.torch.encode(x, bits=24).cpu().numpy()).codec == "lossless"
    with pytest.raises(tenfold.ArgumentError, match="need lossless coding"):
        tenfold.torch.encode(torch.arange(1000, device=device), bits=3)
    with pytest.raises(tenfold.LimitError):
        tenfold.torch.encode(torch.randn(64, 64).to(device), max_bytes=20)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 3, 4, 5)], ids=str)
def test_shapes(device: torch.device, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape).to(device)
    blob = tenfold.torch.encode(x)
    assert blob.device == device
    assert same_bits(tenfold.torch.decode(blob), x)
    assert same_bits(tenfold.torch.decode(blob, out=torch.zeros_like(x)), x)
    tenfold.torch.check()


def test_conversion_on_the_way(device: torch.device) -> None:
    blob = on_host(torch.randn(64, 64), bits=4)
    single = tenfold.torch.decode(on(device, blob))
    assert same_bits(tenfold.torch.decode(on(device, blob), dtype=torch.bfloat16), single.bfloat16())
    assert same_bits(tenfold.torch.decode(on(device, blob), out=torch.empty_like(single).half()), single.half())
    assert same_bits(tenfold.torch.decode(blob, device=_stated(device), dtype=torch.float64), single.double())
    exact = on(device, on_host(torch.randn(64, 64), lossless=True))
    assert tenfold.torch.decode(exact, dtype=torch.float16).dtype == torch.float16


def test_many_in_one_call(device: torch.device) -> None:
    layer = [values_of(dtype, 40 + i, 50) for i, dtype in enumerate([*FLOATS, *INTEGERS] * 3)]
    blobs: list[Any] = [on_host(x, lossless=True) for x in layer]
    blobs[::2] = [on(device, blob) for blob in blobs[::2]]
    outs = [torch.zeros_like(x).to(device) for x in layer]
    tenfold.torch.decode_many(blobs, outs)
    tenfold.torch.check()
    assert all(same_bits(x.to(device), y) for x, y in zip(layer, outs, strict=True))


def test_many_tensors_are_encoded_as_each_would_be(device: torch.device) -> None:
    tensors = [torch.randn(*shape).to(device) for shape in ((64, 64), (300, 70), (5,), (0, 3), (128, 96), (33, 33))]
    for some, goal in ((tensors, {"bits": 3.0}), ([*tensors, torch.arange(100, device=device)], {"lossless": True})):
        blobs = tenfold.torch.encode_many(some, **goal)
        for x, blob in zip(some, blobs, strict=True):
            assert torch.equal(blob, tenfold.torch.encode(x, **goal))
            assert blob.device == x.device
    assert tenfold.torch.encode_many([]) == []
    assert torch.equal(tenfold.torch.encode_many(x for x in tensors[:1])[0], tenfold.torch.encode(tensors[0]))  # type: ignore[arg-type]
    with pytest.raises(tenfold.ArgumentError, match="encode takes one"):
        tenfold.torch.encode_many(tensors[0])  # type: ignore[arg-type]
    with pytest.raises(tenfold.ArgumentError, match="encode does"):
        tenfold.torch.encode_many(tensors, importance=torch.ones(64))
    with pytest.raises(tenfold.DtypeError):
        tenfold.torch.encode_many([tensors[0], tensors[0].to(torch.complex64)])


@pytest.mark.parametrize("multiprocessors", [None, 1])
def test_decoder(device: torch.device, multiprocessors: int | None) -> None:
    layer = [torch.randn(64, 64), torch.randn(100)]
    blobs = [on(device, on_host(layer[0], bits=4)), on(device, on_host(layer[1], lossless=True))]
    outs = [torch.zeros(64, 64, dtype=torch.bfloat16, device=device), torch.zeros(100, device=device)]
    decoder = tenfold.torch.Decoder(blobs, outs, multiprocessors=multiprocessors)
    for _ in range(3):
        outs[0].zero_()
        assert decoder()[0] is outs[0]
        assert same_bits(outs[0], tenfold.torch.decode(blobs[0], dtype=torch.bfloat16))
        assert same_bits(outs[1], layer[1].to(device))
        decoder.check()
    blobs[0][-3] ^= 1
    decoder()
    with pytest.raises(tenfold.DataError, match="checksum"):
        decoder.check()
    # Without checksums, this damage is found as what does not decode.
    for checks, then in ((True, "checksum"), ("once", "a lane does not end where it started")):
        other = tenfold.torch.Decoder(blobs, outs, checksums=checks)  # type: ignore[arg-type]
        for found in ("checksum", then):
            other()
            with pytest.raises(tenfold.DataError, match=found):
                other.check()
    # What has been said is not said again, and a blob that is whole again is decoded again.
    blobs[0][-3] ^= 1
    outs[0].zero_()
    decoder()
    decoder.check()
    assert same_bits(outs[0], tenfold.torch.decode(blobs[0], dtype=torch.bfloat16))
    # A directory that leads elsewhere leads nowhere.
    header = int.from_bytes(bytes(blobs[0][8:12].tolist()), "little")
    there = blobs[0][header - 12 : header - 8].clone()
    blobs[0][header - 12 : header - 8] = 255
    decoder()
    with pytest.raises(tenfold.DataError):
        decoder.check()
    blobs[0][header - 12 : header - 8] = there
    with pytest.raises(tenfold.ArgumentError, match="an output is"):
        tenfold.torch.Decoder(blobs, [outs[1], outs[0]])
    with pytest.raises(tenfold.ArgumentError, match="multiprocessors must be at least 1, not 0"):
        tenfold.torch.Decoder(blobs, outs, multiprocessors=0)
    blobs[0][9] ^= 1
    with pytest.raises(tenfold.DataError):
        tenfold.torch.Decoder(blobs, outs)


def test_a_damaged_blob_is_reported_when_asked(device: torch.device) -> None:
    blob = on(device, on_host(torch.randn(64, 64), bits=4))
    out = torch.empty(64, 64, device=device)
    bad = blob.clone()
    bad[-3] ^= 1
    tenfold.torch.decode(bad, out=out)
    tenfold.torch.decode(blob, out=out)
    with pytest.raises(tenfold.DataError, match="tile checksum"):
        tenfold.torch.check()
    tenfold.torch.check()
    tenfold.torch.decode(blob[: blob.numel() // 2].clone(), out=out)
    with pytest.raises(tenfold.DataError, match="truncated: it needs [0-9]+ bytes"):
        tenfold.torch.check()
    tenfold.torch.decode(blob, out=torch.empty(64, 65, device=device))
    with pytest.raises(tenfold.ArgumentError, match="16384 bytes"):
        tenfold.torch.check()
    tenfold.torch.decode(bad, out=out, checksums=False)
    with pytest.raises(tenfold.DataError, match="a lane does not end where it started"):
        tenfold.torch.check()
    tenfold.torch.decode(torch.zeros(64, dtype=torch.uint8, device=device), out=out)
    with pytest.raises(tenfold.DataError, match="not a tenfold blob"):
        tenfold.torch.check()


def test_verdicts_are_not_lost_when_there_are_many(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_verdicts, "_SLOTS", 4)
    monkeypatch.setattr(_verdicts, "_of_stream", {})
    good = on(device, on_host(torch.randn(64), lossless=True))
    out = torch.empty(64, device=device)
    for at in range(20):
        tenfold.torch.decode(good[:9].clone() if at == 5 else good, out=out)
    with pytest.raises(tenfold.DataError):
        tenfold.torch.check()
    outs = [torch.empty_like(out) for _ in range(9)]
    tenfold.torch.decode_many([good[:9].clone(), *[good] * 8], outs)
    with pytest.raises(tenfold.DataError):
        tenfold.torch.check()
    tenfold.torch.check()


def test_modes_of_torch_change_nothing(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_verdicts, "_SLOTS", 2)
    monkeypatch.setattr(_verdicts, "_of_stream", {})
    x = torch.randn(64, 64)
    blob = on_host(x, lossless=True)
    with torch.inference_mode(), torch.device("meta"):
        there = on(device, blob)
        for _ in range(5):
            assert same_bits(tenfold.torch.decode(there, shape=(64, 64), dtype=torch.float32).cpu(), x)
        assert same_bits(tenfold.torch.decode(blob, device=_stated(device)).cpu(), x)
        assert tenfold.torch.encode(x.to(device), lossless=True).device == device
    tenfold.torch.check()
    tenfold.torch.decode(there[:-4].clone(), shape=(64, 64), dtype=torch.float32)
    with pytest.raises(tenfold.DataError, match="truncated"):
        tenfold.torch.check()


def test_blobs_of_the_host_are_checked_at_once(device: torch.device) -> None:
    bad = bytearray(on_host(torch.randn(64, 64), bits=4))
    bad[-3] ^= 1
    with pytest.raises(tenfold.DataError, match="tile checksum"):
        tenfold.torch.decode(bad, out=torch.empty(64, 64, device=device))
    with pytest.raises(tenfold.DataError, match="tile checksum"):
        tenfold.torch.decode_many([bad], [torch.empty(64, 64, device=device)])
    with pytest.raises(tenfold.DataError, match="truncated"):
        tenfold.torch.decode(bad[:-1], device=_stated(device))


def test_memory_that_a_device_cannot_take(device: torch.device) -> None:
    blob = on(device, on_host(torch.randn(64, 64), lossless=True))
    shifted = torch.empty(blob.numel() + 1, dtype=torch.uint8, device=device)[1:]
    shifted.copy_(blob)
    room = torch.empty(64 * 64 + 1, device=device)
    with pytest.raises(tenfold.ArgumentError, match=r"blob\.clone\(\)"):
        tenfold.torch.decode(shifted, out=room[:-1].view(64, 64))
    with pytest.raises(tenfold.ArgumentError, match="multiple of 16"):
        tenfold.torch.decode(blob, out=room[1:].view(64, 64))
    with pytest.raises(tenfold.ArgumentError, match="multiple of 16"):
        tenfold.torch.encode(room[1:])
    with pytest.raises(tenfold.ArgumentError, match="share memory"):
        tenfold.torch.decode_many([blob, blob], [room[:4096].view(64, 64), room[:4096].view(64, 64)])
    with pytest.raises(tenfold.ArgumentError, match="share memory"):
        tenfold.torch.decode(blob, out=blob[:4096].view(64, 64))
