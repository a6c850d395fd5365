"""What only a CUDA device has: streams, graphs, a host that does not wait."""

from __future__ import annotations

import pytest
import tenfold
import tenfold.torch
import torch
from conftest import no_waits, same_bits

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(512, 1024, device="cuda").bfloat16()


@pytest.fixture
def blob(x: torch.Tensor) -> torch.Tensor:
    return tenfold.torch.encode(x, lossless=True)


def test_without_torch_in_the_name(x: torch.Tensor) -> None:
    blob = tenfold.encode(x, lossless=True)
    assert isinstance(blob, bytes)
    y = tenfold.decode(blob, device="cuda")
    assert y.is_cuda and same_bits(y, x)
    out = torch.empty_like(x)
    assert tenfold.decode(blob, out=out) is out and same_bits(out, x)
    assert tenfold.Codec(bits=3).encode(x)[:4] == blob[:4]


def test_nothing_waits(x: torch.Tensor, blob: torch.Tensor) -> None:
    out = torch.empty_like(x)
    decoder = tenfold.torch.Decoder([blob], [out])
    slow, done = torch.cuda.Stream(), torch.cuda.Event()

    def queue() -> None:
        tenfold.torch.decode(blob, out=out)
        tenfold.torch.decode(blob, shape=x.shape, dtype=x.dtype)
        tenfold.torch.decode_many([blob, blob], [torch.empty_like(x), torch.empty_like(x)])
        decoder()

    torch.cuda.synchronize()
    with torch.cuda.stream(slow):
        queue()  # the first time takes memory and loads kernels
        torch.cuda.synchronize()
        with no_waits():
            torch.cuda._sleep(1_000_000_000)
            queue()
            done.record()
            # All was queued while the device was still asleep.
            assert not done.query()
    torch.cuda.synchronize()
    tenfold.torch.check()
    decoder.check()
    assert same_bits(out, x)


def test_streams(x: torch.Tensor, blob: torch.Tensor) -> None:
    streams = [torch.cuda.Stream() for _ in range(4)]
    outs = [torch.zeros_like(x) for _ in range(40)]
    torch.cuda.synchronize()
    for i, out in enumerate(outs):
        with torch.cuda.stream(streams[i % 4]):
            tenfold.torch.decode(blob, out=out)
    tenfold.torch.check()
    torch.cuda.synchronize()
    assert all(same_bits(out, x) for out in outs)


def test_a_decoder_moves_from_stream_to_stream(x: torch.Tensor, blob: torch.Tensor) -> None:
    out = torch.zeros_like(x)
    decoder = tenfold.torch.Decoder([blob], [out])
    for stream in [torch.cuda.Stream() for _ in range(8)]:
        with torch.cuda.stream(stream):
            decoder()
    decoder.check()
    assert same_bits(out, x)


def test_a_graph_captures_a_decoder(x: torch.Tensor, blob: torch.Tensor) -> None:
    out = torch.zeros_like(x)
    decoder = tenfold.torch.Decoder([blob], [out])
    decoder()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoder()
        doubled = out.float() * 2
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert same_bits(out, x) and torch.equal(doubled, x.float() * 2)
    decoder.check()


def test_compiled(x: torch.Tensor, blob: torch.Tensor) -> None:
    @torch.compile(fullgraph=True, backend="aot_eager")
    def layer(blob: torch.Tensor, room: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y @ tenfold.torch.decode(blob, out=room).T

    room, y = torch.zeros_like(x), torch.randn(8, 1024, device="cuda").bfloat16()
    assert torch.equal(layer(blob, room, y), y @ x.T)
    torch.library.opcheck(torch.ops.tenfold.decode.default, (blob, list(x.shape), x.dtype))
    torch.library.opcheck(torch.ops.tenfold.decode_into.default, (blob, room))


def test_wrong_devices(x: torch.Tensor, blob: torch.Tensor) -> None:
    with pytest.raises(tenfold.ArgumentError, match="the blob is on cuda:0, but the result on cpu"):
        tenfold.torch.decode(blob, device="cpu")
    with pytest.raises(tenfold.ArgumentError, match="the blob is on cuda:0, but the result on cpu"):
        tenfold.torch.decode(blob, out=torch.empty(x.shape, dtype=x.dtype))
    with pytest.raises(tenfold.ArgumentError, match="is on cpu"):
        tenfold.torch.decode_many([blob, blob], [torch.empty_like(x), torch.empty_like(x, device="cpu")])
    with pytest.raises(tenfold.DtypeError, match="bytes"):
        tenfold.decode(blob)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device")
def test_the_current_device_stays(x: torch.Tensor, blob: torch.Tensor) -> None:
    other = torch.device("cuda", 1)
    there = blob.to(other)
    assert same_bits(tenfold.torch.decode(there), x.to(other))
    assert torch.cuda.current_device() == 0
    assert torch.empty(1, device="cuda").device.index == 0
    with pytest.raises(tenfold.ArgumentError, match="cuda:1"):
        tenfold.torch.decode(there, out=torch.empty_like(x))


def test_it_goes_on_after_a_damaged_blob(x: torch.Tensor, blob: torch.Tensor) -> None:
    for at in range(0, blob.numel(), blob.numel() // 50):
        bad = blob.clone()
        bad[at] ^= 0x40
        tenfold.torch.decode(bad, out=torch.empty_like(x))
        with pytest.raises(tenfold.Error):
            tenfold.torch.check()
    assert same_bits(tenfold.torch.decode(blob), x)
