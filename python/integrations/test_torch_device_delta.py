"""Golden deltas applied in place on a device, by its native functions: a CUDA device, or the emulator in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tenfold import ArgumentError, DataError, _native

ROOT = Path(__file__).parents[2] / "conformance" / "v1" / "deltas"
EMULATED = getattr(_native.CudaDevice, "emulated", None)


@pytest.fixture(params=["emulated", "cuda"])
def place(request: pytest.FixtureRequest) -> tuple[Any, str]:
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
        return _native.CudaDevice(0), "cuda"
    if EMULATED is None:
        pytest.skip("this build has no emulator")
    return EMULATED(1 << 30), "cpu"


def golden() -> list[dict[str, Any]]:
    return json.loads((ROOT / "deltas.json").read_text())


def on_device(data: bytes, where: str) -> torch.Tensor:
    # Nothing has no address.
    room = torch.zeros(max(len(data), 1) + 16, dtype=torch.uint8)
    room = room.to(where)
    skip = -room.data_ptr() % 16
    part = room[skip : skip + max(len(data), 1)]
    if data:
        part.copy_(torch.from_numpy(np.frombuffer(data, np.uint8).copy()))
    return part


def at(tensor: torch.Tensor, size: int) -> tuple[int, int]:
    return tensor.data_ptr(), size


@pytest.mark.parametrize("entry", golden(), ids=lambda entry: entry["name"])
def test_golden_deltas_give_the_same_bytes_or_are_refused(place: tuple[Any, str], entry: dict[str, Any]) -> None:
    device, where = place
    blob, base = ((ROOT / entry[key]).read_bytes() for key in ("file", "base"))
    applier = _native.DeviceDelta(device)
    for decoded in (False, True):
        tensor = on_device(base, where)
        given = (at(tensor, len(base)), entry["dtype"], entry["shape"], 0)
        try:
            counts = applier.apply_decoded(blob, base, *given) if decoded else applier.apply(blob, *given)
        except (DataError, ArgumentError):
            assert "kind" in entry
            assert bytes(tensor.cpu().numpy())[: len(base)] == base
            continue
        # A base that is wrong where nothing changes is not noticed on a device.
        if "expected" not in entry:
            continue
        wanted = (ROOT / entry["expected"]).read_bytes()
        assert bytes(tensor.cpu().numpy())[: len(base)] == wanted
        changed = _native.DeltaPlan(blob).changed
        assert counts == (changed, 0)
        assert applier.apply(blob, *given) == (0, changed)


def test_many_deltas_are_applied_in_one_call(place: tuple[Any, str]) -> None:
    device, where = place
    entries = [entry for entry in golden() if "expected" in entry]
    plans, requests, tensors, kept = [], [], [], []
    for entry in entries:
        blob, base = ((ROOT / entry[key]).read_bytes() for key in ("file", "base"))
        plan = _native.DeltaPlan(blob)
        parts = [on_device(data, where) for data in (blob, plan.setup, base)]
        sizes = (len(blob), len(plan.setup), len(base))
        requests.append((plan, *(at(part, size) for part, size in zip(parts, sizes, strict=True))))
        plans.append(plan)
        tensors.append(parts[2])
        kept.append(parts)
        assert (plan.dtype, plan.tensor_len) is not None and list(plan.shape) == entry["shape"]
    need = sum(plan.workspace_len + 256 for plan in plans)
    workspace, status = on_device(bytes(need), where), on_device(bytes(16 * len(plans)), where)
    _native.cuda_apply_deltas(device, requests, status.data_ptr(), at(workspace, need), 0)
    if where == "cuda":
        torch.cuda.synchronize()
    said = bytes(status.cpu().numpy())
    for i, (entry, plan) in enumerate(zip(entries, plans, strict=True)):
        assert plan.check(said[16 * i : 16 * i + 16]) == (plan.changed, 0)
        wanted = (ROOT / entry["expected"]).read_bytes()
        assert bytes(tensors[i].cpu().numpy())[: len(wanted)] == wanted, entry["name"]


def test_another_dtype_or_shape_is_refused(place: tuple[Any, str]) -> None:
    device, where = place
    entry = next(entry for entry in golden() if entry["name"] == "delta_bf16")
    blob, base = ((ROOT / entry[key]).read_bytes() for key in ("file", "base"))
    tensor = on_device(base, where)
    applier = _native.DeviceDelta(device)
    for dtype, shape in (("float16", entry["shape"]), ("bf16", [1, *entry["shape"]])):
        with pytest.raises(ArgumentError, match="the delta is for a tensor of"):
            applier.apply(blob, at(tensor, len(base)), dtype, shape, 0)
    assert bytes(tensor.cpu().numpy()) == base
