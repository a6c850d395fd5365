"""Key-value caches of serving engines, compressed where they are stored.

What the plug-ins share: :class:`Identity` says what cached bytes belong to, :class:`FileStore` keeps them in a folder,
:class:`KvPages` makes them of keys and values. The plug-ins are modules of their own, since each needs its engine:
``tenfold.serving.lmcache``, ``tenfold.serving.vllm`` and ``tenfold.serving.sglang``.
"""

from ._identity import Identity, file_fingerprint
from ._pages import KvPages
from ._records import RECORD_OVERHEAD, open_record, seal
from ._store import FileStore, StoreError, StoreWarning

__all__ = [
    "RECORD_OVERHEAD",
    "FileStore",
    "Identity",
    "KvPages",
    "StoreError",
    "StoreWarning",
    "file_fingerprint",
    "open_record",
    "seal",
]
