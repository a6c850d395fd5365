"""Rotary positions on tensors: taken out of keys, and out of gradients by keys."""

from __future__ import annotations

import math
from typing import Any

import torch


def rope_text(rope: dict[str, Any]) -> str:
    """Rotary positions as ``tenfold basis fit --rope`` takes them.

    >>> rope_text({"head": 64, "base": 10000.0, "pairing": "halves", "turned": None, "scaling": ("linear", 2.0)})
    'base=10000.0,head=64,pairing=halves,linear=2.0'
    """
    parts = [f"base={rope['base']!r}", f"head={rope['head']}", f"pairing={rope['pairing']}"]
    if rope.get("turned"):
        parts.append(f"turned={rope['turned']}")
    match rope.get("scaling"):
        case ("linear", factor):
            parts.append(f"linear={factor!r}")
        case ("llama3", *numbers):
            parts += [f"{name}={number!r}" for name, number in zip(("factor", "low", "high", "original"), numbers)]
    return ",".join(parts)


def undo_rotary(states: torch.Tensor, rope: dict[str, Any] | None) -> torch.Tensor:
    """Takes positions 0, 1, … out of keys, or out of gradients by them: … × tokens × columns of a head, as float32."""
    states = states.float()
    if rope is None:
        return states
    turned = rope.get("turned") or rope["head"]
    frequencies = torch.tensor(_frequencies(rope, turned), dtype=torch.float64)
    angles = torch.arange(states.shape[-2], dtype=torch.float64)[:, None] * frequencies
    cos, sin = angles.cos().float().to(states.device), angles.sin().float().to(states.device)
    out, half = states.clone(), turned // 2
    if rope["pairing"] == "halves":
        first, second = slice(0, half), slice(half, turned)
    else:
        first, second = slice(0, turned, 2), slice(1, turned, 2)
    a, b = states[..., first], states[..., second]
    out[..., first] = a * cos + b * sin
    out[..., second] = b * cos - a * sin
    return out


def _frequencies(rope: dict[str, Any], turned: int) -> list[float]:
    plain = [rope["base"] ** (-2 * k / turned) for k in range(turned // 2)]
    match rope.get("scaling"):
        case None:
            return plain
        case ("linear", factor):
            return [f / factor for f in plain]
        case (_, factor, low, high, original):
            keep = [min(max((original * f / math.tau - low) / (high - low), 0.0), 1.0) for f in plain]
            return [f * ((1 - k) / factor + k) for f, k in zip(plain, keep)]
    raise AssertionError("no other scaling is known")
