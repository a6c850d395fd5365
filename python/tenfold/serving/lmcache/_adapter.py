"""Makes an LMCache server import this package, through its configuration alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lmcache.v1.distributed.l2_adapters import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    create_l2_adapter,
)
from lmcache.v1.distributed.l2_adapters.base import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    L2AdapterInterface,
)
from lmcache.v1.distributed.l2_adapters.config import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    get_l2_adapter_config_class,
)

from ..._errors import ArgumentError


class Adapter(L2AdapterInterface):  # type: ignore[misc,unused-ignore]
    """Any adapter of LMCache, as a plug-in: calling this makes the adapter that the parameters describe, and nothing else.

    LMCache loads plug-ins of adapters by module, and serdes not at all; it makes an adapter before the adapter's serde. So
    ``"type": "plugin"`` with this class brings the serde along, whichever adapter does the work.

    Args:
        params: ``adapter_params`` of the plug-in: what the configuration would be without it, as in
            ``{"type": "fs", "base_path": "/var/cache/kv"}``.
        l1_memory_desc: LMCache's memory, for adapters that need it.
    """

    def __new__(cls, params: Mapping[str, Any], l1_memory_desc: Any = None) -> Any:
        name = params.get("type")
        if not isinstance(name, str) or name == "plugin":
            raise ArgumentError(f'adapter_params of the tenfold plug-in need a "type" as in "fs", not {name!r}')
        if misplaced := sorted({"eviction", "persist", "serde", "shared", "affinity_tag"} & params.keys()):
            # LMCache reads them one level up, and would not miss them here.
            raise ArgumentError(f"{', '.join(misplaced)}: state it beside adapter_params, not in them")
        return create_l2_adapter(get_l2_adapter_config_class(name).from_dict(dict(params)), l1_memory_desc)
