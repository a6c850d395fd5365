"""Training over several ranks with compressed communication.

Gradients of data-parallel training, with a DistributedDataParallel hook or an FSDP2 collective::

    import tenfold.torch.distributed as td

    hook = td.register(ddp_model, bits=2.6)
    shards = td.register_fsdp(fsdp_model, bits=2.6)

Activations and their gradients between stages of a pipeline::

    stage = td.CompressedStage(part, stage_index, num_stages, device, activation_bits=3.5)

Activations from one rank to another, whatever their shapes, as inference sends them::

    channel = td.Channel(0, 1, coder="auto", bits=3.5)

See docs/training.md for what is exchanged, what error feedback is, and what it costs.
"""

from ._channel import Channel, Expected
from ._fsdp import ShardedGradients, register_fsdp
from ._hook import GradientHook, register
from ._pipeline import CompressedStage
from ._ways import Sending

__all__ = [
    "Channel",
    "CompressedStage",
    "Expected",
    "GradientHook",
    "Sending",
    "ShardedGradients",
    "register",
    "register_fsdp",
]
