"""torch.compile takes the operators without a break, and torch's own checks of operators pass."""

from __future__ import annotations

from typing import Any

import pytest
import tenfold
import tenfold.torch
import torch
from conftest import same_bits

OPS = torch.ops.tenfold


def compiled(function: Any) -> Any:
    return torch.compile(function, fullgraph=True, backend="aot_eager")


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(64, 64)


@pytest.fixture
def blob(x: torch.Tensor) -> torch.Tensor:
    return tenfold.torch.encode(x, lossless=True)


def test_decode_into(x: torch.Tensor, blob: torch.Tensor) -> None:
    @compiled
    def layer(blob: torch.Tensor, room: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y @ tenfold.torch.decode(blob, out=room).T

    room, y = torch.zeros(64, 64), torch.randn(8, 64)
    assert torch.equal(layer(blob, room, y), y @ x.T)
    assert same_bits(room, x)


def test_decode(x: torch.Tensor, blob: torch.Tensor) -> None:
    @compiled
    def layer(blob: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y @ tenfold.torch.decode(blob, shape=(64, 64), dtype=torch.float32).T

    y = torch.randn(8, 64)
    assert torch.equal(layer(blob, y), y @ x.T)


def test_decode_many(x: torch.Tensor, blob: torch.Tensor) -> None:
    @compiled
    def both(blobs: list[torch.Tensor], rooms: list[torch.Tensor]) -> torch.Tensor:
        tenfold.torch.decode_many(blobs, rooms)
        return rooms[0] + rooms[1]

    rooms = [torch.zeros(64, 64), torch.zeros(64, 64)]
    assert torch.equal(both([blob, blob], rooms), x + x)
    assert same_bits(rooms[1], x)


def test_encode(x: torch.Tensor) -> None:
    # How long a blob is only its values say; torch wants to be told that this is meant.
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        there_and_back = compiled(
            lambda x: tenfold.torch.decode(
                tenfold.torch.encode(x * 2, max_error=0.01, effort="fast"), shape=(64, 64), dtype=torch.float32
            )
        )
        assert 0 < float((there_and_back(x) - x * 2).abs().max()) <= 0.01


def test_without_a_shape_nothing_can_be_compiled(blob: torch.Tensor) -> None:
    with pytest.raises(Exception, match="state out, or shape and dtype"):
        compiled(lambda blob: tenfold.torch.decode(blob))(blob)


def test_torchs_own_checks(x: torch.Tensor, blob: torch.Tensor) -> None:
    room = torch.zeros(64, 64)
    torch.library.opcheck(OPS.decode_into.default, (blob, room))
    torch.library.opcheck(OPS.decode.default, (blob, [64, 64], torch.float32))
    torch.library.opcheck(OPS.decode_many.default, ([blob, blob], [room, torch.zeros(64, 64)]))
    torch.library.opcheck(OPS.encode.default, (x, "bits", 3.0), {"effort": "fast"})


def test_fake_tensors(x: torch.Tensor, blob: torch.Tensor) -> None:
    with torch._subclasses.FakeTensorMode() as mode:
        fake = OPS.decode(mode.from_tensor(blob), [64, 64], torch.bfloat16)
    assert fake.shape == (64, 64) and fake.dtype == torch.bfloat16
