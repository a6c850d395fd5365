"""What tests share."""

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def normal(rng):
    """A matrix of N(0, 1) as float32."""
    return rng.standard_normal((128, 256), dtype=np.float32)
