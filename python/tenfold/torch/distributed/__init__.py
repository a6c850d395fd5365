"""Gradients of data-parallel training, compressed on their way between ranks.

>>> import tenfold.torch.distributed as td
>>> hook = td.register(ddp_model, bits=2.6)                     # doctest: +SKIP

docs/training.md says what is exchanged, and what error feedback is.
"""

from ._hook import GradientHook, register

__all__ = ["GradientHook", "register"]
