"""What cannot work is an exception that says what to do."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import tenfold
import tenfold.torch
import torch

X = torch.randn(32, 32)
BLOB = tenfold.torch.encode(X, lossless=True)
SPARSE = torch.eye(4).to_sparse()
META = torch.empty(4, 4, device="meta")


def quantised() -> torch.Tensor:
    with warnings.catch_warnings():
        # Newer versions of torch say that this goes away.
        warnings.simplefilter("ignore", UserWarning)
        return torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)


BAD_TENSORS: list[tuple[Any, type[Exception], str]] = [
    (X.T, tenfold.ArgumentError, r"tensor\.contiguous\(\)"),
    (X[:, 1:], tenfold.ArgumentError, r"tensor\.contiguous\(\)"),
    (X.expand(2, 32, 32), tenfold.ArgumentError, r"tensor\.contiguous\(\)"),
    (X.clone().requires_grad_(), tenfold.ArgumentError, r"tensor\.detach\(\)"),
    (torch.nn.Parameter(X.clone()), tenfold.ArgumentError, r"tensor\.detach\(\)"),
    (META, tenfold.ArgumentError, "meta device"),
    (SPARSE, tenfold.DtypeError, r"to_dense\(\)"),
    (torch.nested.nested_tensor([X, X[:3]], layout=torch.jagged), tenfold.DtypeError, "nested"),
    (torch.randn(4, dtype=torch.complex64), tenfold.DtypeError, "view_as_real"),
    (torch.randn(4, dtype=torch.complex64).conj().imag, tenfold.ArgumentError, "contiguous|resolve_neg"),
    ([1.0, 2.0], tenfold.DtypeError, "must be a torch.Tensor, not list"),
    (X.numpy(), tenfold.DtypeError, "must be a torch.Tensor, not ndarray"),
    (torch.arange(4), tenfold.ArgumentError, "need lossless coding"),
]


@pytest.mark.parametrize(("tensor", "kind", "text"), BAD_TENSORS, ids=range(len(BAD_TENSORS)))
def test_tensors_to_encode(tensor: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        tenfold.torch.encode(tensor)


def test_quantised() -> None:
    with pytest.raises(tenfold.DtypeError, match="dequantize"):
        tenfold.torch.encode(quantised())


class Elsewhere(torch.Tensor):
    """A subclass whose values are in other tensors, as a DTensor's."""

    @staticmethod
    def __new__(cls) -> Elsewhere:
        return torch.Tensor._make_wrapper_subclass(cls, (32, 32))

    def __init__(self) -> None:
        pass

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(str(function))


def test_tensors_without_memory() -> None:
    freed = torch.randn(32, 32)
    freed.untyped_storage().resize_(0)
    short = torch.randn(32, 32)
    short.untyped_storage().resize_(100)
    for tensor in (freed, short, Elsewhere()):
        with pytest.raises(tenfold.ArgumentError, match="no memory of its own"):
            tenfold.torch.encode(tensor)
        with pytest.raises(tenfold.ArgumentError, match="no memory of its own"):
            tenfold.torch.decode(BLOB, out=tensor)


def test_parameters_are_taken_where_gradients_are_off() -> None:
    parameter = torch.nn.Parameter(torch.zeros(32, 32))
    with pytest.raises(tenfold.ArgumentError, match="no_grad"):
        tenfold.torch.decode(BLOB, out=parameter)
    with torch.no_grad():
        tenfold.torch.decode(BLOB, out=parameter)
        assert torch.equal(tenfold.torch.decode(tenfold.torch.encode(parameter, lossless=True)), X)


BAD_OUTPUTS: list[tuple[Any, type[Exception], str]] = [
    (torch.empty(32, 32).T[:, ::2], tenfold.ArgumentError, "contiguous"),
    (torch.empty(32, 31), tenfold.ArgumentError, r"\(32, 31\).*\(32, 32\)"),
    (torch.empty(1024), tenfold.ArgumentError, "shape"),
    (torch.empty(32, 32, device="meta"), tenfold.ArgumentError, "meta"),
    (torch.empty(32, 32, dtype=torch.complex64), tenfold.DtypeError, "complex64"),
    (torch.empty(32, 32, dtype=torch.int32), tenfold.DtypeError, "int32"),
    (torch.eye(32).to_sparse(), tenfold.DtypeError, "sparse"),
    (X.numpy(), tenfold.DtypeError, "must be a torch.Tensor"),
]


@pytest.mark.parametrize(("out", "kind", "text"), BAD_OUTPUTS, ids=range(len(BAD_OUTPUTS)))
def test_outputs(out: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        tenfold.torch.decode(BLOB, out=out)
    with pytest.raises(kind, match=text):
        tenfold.torch.decode_many([BLOB], [out])


@pytest.mark.parametrize(
    ("blob", "kind", "text"),
    [
        (BLOB.float(), tenfold.DtypeError, "torch.uint8"),
        (BLOB[::2], tenfold.ArgumentError, "contiguous"),
        (BLOB[:-1], tenfold.DataError, "truncated"),
        (BLOB[:0], tenfold.DataError, "blob"),
        (torch.zeros(100, dtype=torch.uint8), tenfold.DataError, "blob"),
        (BLOB.to("meta"), tenfold.ArgumentError, "meta"),
        (17, tenfold.DtypeError, "bytes"),
        (None, tenfold.DtypeError, "bytes"),
        (b"", tenfold.DataError, "blob"),
    ],
    ids=range(9),
)
def test_blobs(blob: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        tenfold.torch.decode(blob)


def test_every_flipped_byte_is_found() -> None:
    for at in range(0, BLOB.numel(), 97):
        bad = BLOB.clone()
        bad[at] ^= 0x10
        with pytest.raises((tenfold.DataError, tenfold.UnsupportedError, tenfold.LimitError)):
            tenfold.torch.decode(bad)


def test_arguments() -> None:
    with pytest.raises(tenfold.ArgumentError, match="out excludes"):
        tenfold.torch.decode(BLOB, out=torch.empty(32, 32), dtype=torch.float32)
    with pytest.raises(tenfold.ArgumentError, match="shape needs dtype"):
        tenfold.torch.decode(BLOB, shape=(32, 32))
    with pytest.raises(tenfold.ArgumentError, match="is not a device"):
        tenfold.torch.decode(BLOB, device="nowhere")
    with pytest.raises(tenfold.UnsupportedError, match="cpu and cuda"):
        tenfold.torch.decode(BLOB, device="mps")
    with pytest.raises(tenfold.DtypeError, match="dtype"):
        tenfold.torch.decode(BLOB, dtype="float33")
    with pytest.raises(tenfold.ArgumentError, match="2 blobs and 1 outputs"):
        tenfold.torch.decode_many([BLOB, BLOB], [torch.empty(32, 32)])
    with pytest.raises(tenfold.ArgumentError, match="one goal at a time"):
        tenfold.torch.encode(X, bits=2, lossless=True)
    with pytest.raises(TypeError):
        tenfold.torch.encode(X, colour="red")
    with pytest.raises(tenfold.ArgumentError, match="negative"):
        tenfold.torch.decode(BLOB, threads=-1)
    with pytest.raises(tenfold.ArgumentError, match="negative"):
        tenfold.torch.decode_many([BLOB], [torch.empty(32, 32)], max_bytes=-1)
    with pytest.raises(tenfold.LimitError, match="max_bytes"):
        tenfold.torch.decode(BLOB, max_bytes=100)
    with pytest.raises(tenfold.ArgumentError, match="rows and device"):
        tenfold.decode(bytes(BLOB.numpy()), device="cpu", rows=1)
    with pytest.raises(tenfold.UnsupportedError, match="Decoder needs a CUDA"):
        tenfold.torch.Decoder([BLOB], [torch.empty(32, 32)])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_device() -> None:
    with pytest.raises(tenfold.ArgumentError, match="no CUDA device"):
        tenfold.torch.decode(BLOB, device="cuda")
    with pytest.raises(tenfold.ArgumentError, match="no CUDA device"):
        tenfold.decode(bytes(BLOB.numpy()), device="cuda:3")
    with pytest.raises(tenfold.MachineError, match="no CUDA device"):
        tenfold._native.CudaDevice(0)
