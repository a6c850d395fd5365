"""Options of the serde: what is wrong is said when a server starts, by a type and in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tenfold
import torch
from lmcache_objects import buffer, described, fill, key, memory, nmse, parts, serde
from safetensors.torch import save_file
from tenfold import _native
from tenfold.serving.lmcache import Options

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"bit": 4}, "unknown options of the tenfold serde: bit"),
    ({"bits": "4"}, "option bits"),
    ({"bits": True}, "option bits"),
    ({"bits": None}, "option bits"),
    ({"bits": 0}, "above 0"),
    ({"bits": 65}, "at most 64"),
    ({"bits": float("nan")}, "above 0"),
    ({"max_bytes": 0}, "max_bytes"),
    ({"max_bytes": 1.5}, "option max_bytes"),
    ({"bits": 4, "max_bytes": 100}, "not both"),
    ({"lossless": 1}, "option lossless"),
    ({"lossless": True}, "most adapters of LMCache"),
    ({"effort": "fastest"}, "effort|fastest"),
    ({"threads": -1}, "option threads"),
    ({"exact": -1}, "option exact"),
    ({"group": 0}, "option group"),
    ({"max_workers": 0}, "option max_workers"),
    ({"key_step": 0}, "key_step"),
    ({"key_step": float("inf")}, "key_step"),
    ({"dtype": "float16"}, "option dtype"),
    ({"model": 3}, "option model"),
]


@pytest.mark.parametrize(("given", "why"), WRONG, ids=[str(given) for given, _ in WRONG])
def test_wrong_options(given: dict[str, Any], why: str) -> None:
    with pytest.raises(tenfold.ArgumentError, match=why):
        Options.parse(given)


def test_rates_as_text() -> None:
    assert Options.parse({}).rate == "bits=4" == Options.parse({"bits": 4}).rate
    assert Options.parse({"max_bytes": 77}).rate == "max_bytes=77"
    assert Options.parse({"lossless": True, "bits": 12.5}).rate == "lossless bits=12.5"
    assert Options.parse({"lossless": True, "pad": False}).rate == "lossless"


def rows(tokens: int, seed: int) -> dict[str, torch.Tensor]:
    """Captured rows that move together, of two layers."""
    made = torch.Generator().manual_seed(seed)
    mixed = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    return {
        f"layers.{layer}.{kind}": (torch.randn(tokens, 8, generator=made) @ mixed).bfloat16()
        + 0.05 * torch.randn(tokens, 64, generator=made).bfloat16()
        for layer in (0, 1)
        for kind in ("k", "v")
    }


def fitted(folder: Path, rope: str) -> str:
    save_file(rows(2000, 1), folder / "captured.safetensors")
    path = folder / f"{rope[:4]}.basis"
    words = ["tenfold", "basis", "fit", str(folder / "captured.safetensors"), "--out", str(path), "--rope", rope, "--group", "1"]
    assert _native.main([*words, "--quiet"]) == 0
    return str(path)


def test_bases(tmp_path: Path) -> None:
    bases = fitted(tmp_path, "none")
    captured = rows(64, 2)
    shape = [2, 2, 64, 64]
    errors = []
    for how in ({}, {"bases": bases}):
        serializer, deserializer = serde(bits=2.5, **how)
        before, after = memory([shape], [torch.bfloat16]), memory([shape], [torch.bfloat16])
        for plane, kind in enumerate("kv"):
            for layer in (0, 1):
                parts(before)[0][plane, layer] = captured[f"layers.{layer}.{kind}"]
        target = buffer(serializer.estimate_serialized_size(described([shape], [torch.bfloat16])))
        serializer.serialize(before, target, key())
        deserializer.deserialize(target, after, key())
        errors.append(nmse(parts(after)[0], parts(before)[0]))
        if how:
            # Without the file, or with another, the record is someone else's.
            _, without = serde(bits=2.5)
            with pytest.raises(tenfold.DataError, match="another"):
                without.deserialize(target, after, key())
    assert errors[1] < errors[0] / 3
    # Of another number of layers than the cache.
    other = [2, 3, 64, 64]
    target = buffer(serializer.estimate_serialized_size(described([other], [torch.bfloat16])))
    with pytest.raises(tenfold.ArgumentError, match="2 layers"):
        serializer.serialize(fill(memory([other], [torch.bfloat16])), target, key())


def test_bases_that_cannot_work(tmp_path: Path) -> None:
    with pytest.raises(tenfold.ArgumentError, match="positions, which LMCache does not say"):
        Options.parse({"bases": fitted(tmp_path, "base=10000,head=64")})
    with pytest.raises(tenfold.NotFoundError):
        Options.parse({"bases": str(tmp_path / "none at all")})
    (tmp_path / "text").write_text("no bases")
    with pytest.raises(tenfold.Error):
        Options.parse({"bases": str(tmp_path / "text")})
