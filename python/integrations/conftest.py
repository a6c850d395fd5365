"""What tests of tenfold.torch share."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import pytest
import torch

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float64)
INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if torch.cuda.is_available():
        terminalreporter.write_line(f"CUDA tests ran on {torch.cuda.get_device_name()}")
    else:
        terminalreporter.write_line("no CUDA device here: tests that need one were skipped")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


@contextlib.contextmanager
def no_waits() -> Iterator[None]:
    """In here torch raises where one of its functions makes the host wait for a device."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype", UserWarning)
        try:
            torch.cuda.set_sync_debug_mode("error")
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same bytes."""
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        return False
    return torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8))


def values_of(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Made-up values of a dtype."""
    if dtype == torch.bool:
        return torch.randn(shape) > 0
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 100, shape).to(dtype)
