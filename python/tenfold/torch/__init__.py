"""torch tensors on the CPU and on CUDA devices: read in place, coded where they lie, on torch's current stream.

>>> import torch, tenfold.torch
>>> x = torch.randn(512, 512, dtype=torch.bfloat16)
>>> blob = tenfold.torch.encode(x, bits=2.5)
>>> blob.dtype, blob.device == x.device, x.nbytes / blob.nbytes > 6
(torch.uint8, True, True)
>>> tenfold.torch.decode(blob, out=torch.empty_like(x)).shape
torch.Size([512, 512])

See docs/torch.md: which calls wait for a device, ``torch.compile``, many tensors in one call.
"""

try:
    import torch as _torch  # noqa: F401 - only to say what is missing
except ImportError as error:
    raise ImportError("tenfold.torch needs torch: pip install 'tenfold[torch]'") from error

from ._calibration import Calibration
from ._codec import Codec, decode, decode_many, encode, encode_many
from ._decoder import Decoder
from ._delta_tracker import DeltaTracker
from ._importance import Importance
from ._layerwise import calibrate_layers
from ._parts import add_parts, calibrate_part
from ._pull import pull
from ._verdicts import check
from ._video import VideoDecoder, VideoEncoder, VideoPending

# After the functions that it uses.
from .kept import compress_module, decompress_module  # noqa: E402 isort: skip

# Registers the operators of torch.ops.tenfold.
from . import _ops  # noqa: F401, E402 isort: skip

__all__ = [
    "Calibration",
    "Codec",
    "Decoder",
    "DeltaTracker",
    "Importance",
    "VideoDecoder",
    "VideoEncoder",
    "VideoPending",
    "add_parts",
    "calibrate_layers",
    "calibrate_part",
    "check",
    "compress_module",
    "decode",
    "decode_many",
    "decompress_module",
    "encode",
    "encode_many",
    "pull",
]
