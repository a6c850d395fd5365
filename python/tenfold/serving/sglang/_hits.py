"""Lengths of a prefix that a second pool allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._errors import UnsupportedError


def restorable(present: Sequence[bool], transfer: Any) -> list[int]:
    """Numbers of pages, in order, up to which a prefix can be restored.

    Args:
        present: for each page of the prefix whether the pool has it.
        transfer: SGLang's ``PoolTransfer``: its policy, and for trailing pages as many keys as pages are needed.
    """
    policy = str(transfer.hit_policy.value)
    if policy == "all_pages":
        window = len(present)
    elif policy == "trailing_pages":
        window = max(1, len(transfer.keys or ()))
    else:
        raise UnsupportedError(f"the tenfold backend knows no pools with policy {policy}")
    lengths, run = [], 0
    for length, there in enumerate(present, 1):
        run = run + 1 if there else 0
        if run >= min(window, length):
            lengths.append(length)
    return lengths
