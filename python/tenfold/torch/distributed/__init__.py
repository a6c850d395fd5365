"""Training over several ranks, with what they exchange compressed.

Gradients of data-parallel training, by a hook of DistributedDataParallel or a collective of FSDP2::

    import tenfold.torch.distributed as td

    hook = td.register(ddp_model, bits=2.6)
    shards = td.register_fsdp(fsdp_model, bits=2.6)

docs/training.md says what is exchanged, what error feedback is, and what it costs.
"""

from ._fsdp import ShardedGradients, register_fsdp
from ._hook import GradientHook, register

__all__ = ["GradientHook", "ShardedGradients", "register", "register_fsdp"]
