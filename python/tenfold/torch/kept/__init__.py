"""Modules whose weights stay compressed in memory and are decoded when their turn comes.

In the order of the work: which weights are held (``_held``, ``_choose``), where their blobs lie (``_pinned``), who decodes them
(``_engines``) into which memory (``_ring``), around which calls (``_layers``), who multiplies by them (``_products``) and norms
(``_norms``) in place of a part's own ``forward`` (``_instead``), and whole calls of the module (``_passes``), which may be CUDA
graphs (``_graph``). ``_watch`` looks after damaged blobs.
"""

from ._compress import check_buffers, check_checksums, compress_module, decompress_module
from ._held import Held, Site, Stage, decode_named, restore, sites
from ._layers import Layers

__all__ = [
    "Held",
    "Layers",
    "Site",
    "Stage",
    "check_buffers",
    "check_checksums",
    "compress_module",
    "decode_named",
    "decompress_module",
    "restore",
    "sites",
]
