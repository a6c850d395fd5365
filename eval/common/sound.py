"""A sound that needs no recording: something like speech, from pulses through moving resonances, with noise between."""

from __future__ import annotations

import numpy as np

RATE = 16_000
"""Samples a second."""


def babble(seconds: float, seed: int = 0) -> np.ndarray:
    """Voiced syllables with a gliding pitch and random vowels, and breaths of noise between them; f32, within ±1."""
    random = np.random.default_rng(seed)
    parts: list[np.ndarray] = []
    while sum(map(len, parts)) < seconds * RATE:
        length = int(random.uniform(0.12, 0.35) * RATE)
        pitch = np.exp2(np.linspace(*random.uniform(np.log2(90), np.log2(240), 2), length))
        phase = np.cumsum(pitch) / RATE
        # A vowel is two or three resonances; harmonics near them are loud.
        formants = (random.uniform(250, 850), random.uniform(900, 2400), random.uniform(2400, 3400))
        voice = np.zeros(length)
        for harmonic in range(1, 34):
            frequency = harmonic * pitch
            gain = sum(1 / (1 + ((frequency - f) / (60 + 0.06 * f)) ** 2) for f in formants)
            voice += np.where(frequency < RATE / 2.2, gain / harmonic**0.5, 0) * np.sin(2 * np.pi * harmonic * phase)
        voice *= np.hanning(length)
        breath = random.standard_normal(int(random.uniform(0.02, 0.12) * RATE)) * random.uniform(0.02, 0.3)
        parts += [voice / (np.abs(voice).max() + 1e-9), breath * np.hanning(len(breath))]
    sound = np.concatenate(parts)[: int(seconds * RATE)]
    return np.float32(0.6 * sound + 0.003 * random.standard_normal(len(sound)))


def frames(sound: np.ndarray, length: int = 1024, hop: int = 160) -> np.ndarray:
    """Overlapping pieces of a sound."""
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(sound, length)[::hop])
