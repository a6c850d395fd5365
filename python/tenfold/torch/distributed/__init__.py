"""Training over several ranks with compressed communication.

Gradients of data-parallel training, with a DistributedDataParallel hook or an FSDP2 collective::

    import tenfold.torch.distributed as td

    hook = td.register(ddp_model, bits=2.6)
    shards = td.register_fsdp(fsdp_model, bits=2.6)

Activations and their gradients between stages of a pipeline::

    stage = td.CompressedStage(part, stage_index, num_stages, device, activation_bits=3.5)

See docs/training.md for what is exchanged, what error feedback is, and what it costs.
"""

from ._fsdp import ShardedGradients, register_fsdp
from ._hook import GradientHook, register
from ._pipeline import CompressedStage

__all__ = ["CompressedStage", "GradientHook", "ShardedGradients", "register", "register_fsdp"]
