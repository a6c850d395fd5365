"""Compressed storage for the key-value caches of serving engines.

The plug-ins share :class:`Identity`, which says what cached bytes belong to, :class:`FileStore`, which keeps them in a
folder, and :class:`KvPages`, which makes them from keys and values. Each plug-in is a separate module, since it needs
its engine:
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
