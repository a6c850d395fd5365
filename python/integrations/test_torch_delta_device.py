"""Deltas applied to tensors on a device, by a CUDA device or by the emulator in its place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tenfold
import torch
from conftest import FLOATS, INTEGERS, same_bits, values_of
from tenfold import delta
from tenfold.torch import _delta, _delta_cuda, _device
from test_torch_device import each, emulate


@pytest.fixture(params=["emulator", "cuda"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    monkeypatch.setattr(_delta_cuda, "_appliers", {})
    yield from each(request.param, monkeypatch, emulate)


def versions(dtype: torch.dtype, device: torch.device, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    base, other = (values_of(dtype, *shape).view(bits) for _ in range(2))
    new = torch.where(torch.rand(shape) < 0.1, other, base)
    return base.view(dtype).to(device), new.view(dtype).to(device)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
@pytest.mark.parametrize("verify", ["whole", "touched"])
def test_the_same_bits_as_on_the_host(device: torch.device, dtype: torch.dtype, verify: str) -> None:
    base, new = versions(dtype, device, 96, 100)
    blob = delta.make(base, new)
    version = base._version
    count = delta.inspect(blob).changed
    assert delta.apply_(base, blob, verify=verify) == (count, 0)
    assert same_bits(base, new) and base._version > version
    assert delta.apply_(base, blob, verify=verify) == (0, count)


def test_the_device_does_it(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    base, new = versions(torch.bfloat16, device, 64, 64)
    blob = delta.make(base, new)
    monkeypatch.setattr(tenfold._native, "delta_apply", lambda pairs, *_: [] if not pairs else 1 / 0)
    delta.apply_(base, blob, verify="touched")
    assert same_bits(base, new) and _delta_cuda._appliers


def test_views_and_shapes(device: torch.device) -> None:
    room, after = versions(torch.bfloat16, device, 65, 33)
    for part in (slice(1, 64), slice(0, 0), slice(7, 8)):
        base, new = room[part].clone(), after[part]
        place = torch.zeros(70, 33, dtype=torch.bfloat16, device=device)[3 : 3 + len(base)]
        place.copy_(base)
        delta.apply_(place, delta.make(base, new))
        assert same_bits(place, new)
    turned = room.t()
    delta.apply_(turned, delta.make(room.t(), after.t()))
    assert same_bits(room, after)


def test_another_base_stays_as_it_is(device: torch.device) -> None:
    base, new = versions(torch.float32, device, 64, 64)
    blob = delta.make(base, new)
    other = base * 2
    kept = other.clone()
    for verify in ("whole", "touched"):
        with pytest.raises(tenfold.WrongBaseError):
            delta.apply_(other, blob, verify=verify)
        assert same_bits(other, kept)
    damaged = bytearray(blob)
    damaged[-9] ^= 1
    for verify in ("whole", "touched"):
        with pytest.raises(tenfold.DataError):
            delta.apply_(base.clone(), damaged, verify=verify)


def test_state_dicts(device: torch.device) -> None:
    pairs = {name: versions(dtype, device, 64, 48) for name, dtype in {"w": torch.bfloat16, "s": torch.float32}.items()}
    old, new = ({name: pair[at] for name, pair in pairs.items()} for at in (0, 1))
    blob = delta.make(old, new)
    bad = {"w": old["w"].clone(), "s": old["s"] + 1}
    kept = {name: tensor.clone() for name, tensor in bad.items()}
    with pytest.raises(tenfold.WrongBaseError):
        delta.apply_(bad, blob)
    assert all(same_bits(bad[name], kept[name]) for name in bad)
    assert delta.apply_(old, blob).written > 0
    assert all(same_bits(old[name], new[name]) for name in old)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_fingerprints_are_those_of_the_host(device: torch.device, dtype: torch.dtype) -> None:
    for shape in ((), (0,), (7,), (300, 41), (2, 3, 500)):
        tensor = values_of(dtype, *shape)
        assert delta.fingerprint(tensor.to(device)) == delta.fingerprint(tensor)
    turned = values_of(dtype, 30, 50).t()
    assert delta.fingerprint(turned.to(device)) == delta.fingerprint(turned.contiguous())
    state = {"a": values_of(dtype, 900), "b": turned, "c": values_of(dtype, 3)[1:]}
    assert delta.fingerprint({name: one.to(device) for name, one in state.items()}) == delta.fingerprint(state)


def test_the_whole_is_checked_without_a_copy_of_it(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    base, new = versions(torch.bfloat16, device, 64, 64)
    blob = delta.make({"w": base, "s": base.clone()}, {"w": new, "s": base})
    state = {"w": base, "s": base.clone()}
    monkeypatch.setattr(_delta, "host_bytes", lambda _: 1 / 0)
    for counts in ((1, 0), (0, 1)):
        done = delta.apply_(state, blob)
        assert (done.written > 0, done.before > 0) == counts
    assert same_bits(state["w"], new)


def test_an_interrupted_application_is_completed(device: torch.device) -> None:
    base, new = versions(torch.float32, device, 1 << 10, 1 << 8)
    blob = delta.make(base, new)
    assert delta.inspect(blob).tiles > 1
    half = base.numel() // 2
    base.view(-1)[half:] = new.view(-1)[half:]
    done = delta.apply_(base, blob)
    assert done.written > 0 and done.before > 0 and same_bits(base, new)


def test_what_a_delta_does_not_touch_counts(device: torch.device) -> None:
    base, new = versions(torch.int16, device, 64, 64)
    blob = delta.make(base, new)
    there = (base == new).nonzero()[0].tolist()
    for other in (base.clone(), new.clone()):
        other[*there] += 1
        kept = other.clone()
        with pytest.raises(tenfold.WrongBaseError):
            delta.apply_(other, blob)
        assert same_bits(other, kept)
        delta.apply_(other, blob, verify="touched")


def test_damage_is_found_before_anything_is_written(device: torch.device) -> None:
    base, new = versions(torch.float32, device, 64, 64)
    blobs = [bytearray(delta.make(base, new)) for _ in range(2)]
    blobs[1][-9] ^= 1
    targets = [base.clone(), base.clone()]
    with pytest.raises(tenfold.DataError):
        _delta.apply_(list(zip(blobs, targets, strict=True)), None, "whole", 0, None)
    assert all(same_bits(target, base) for target in targets)


def test_no_graph_captures_it(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    base, new = versions(torch.float32, device, 8, 8)
    blob = delta.make(base, new)
    monkeypatch.setattr(_device, "is_capturing", lambda: True)
    with pytest.raises(tenfold.ArgumentError, match="CUDA graph"):
        delta.apply_(base, blob)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_on_the_current_stream() -> None:
    base, new = versions(torch.bfloat16, torch.device("cuda", 0), 512, 512)
    there = torch.zeros_like(base)
    blob = delta.make(base, new)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        there.copy_(base)
        delta.apply_(there, blob, verify="touched")
    assert same_bits(there, new)
