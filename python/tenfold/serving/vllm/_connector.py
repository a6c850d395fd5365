"""The class that vLLM makes twice: in its scheduler, and in each of its workers."""

from __future__ import annotations

import sys
from typing import Any

from vllm.config import CUDAGraphMode
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole, SupportsHMA
from vllm.distributed.parallel_state import get_tensor_model_parallel_rank
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from ._codec import pages_of
from ._identity import identity_of
from ._options import Options
from ._plan import Plan
from ._scheduler import Scheduler
from ._shape import shape_of
from ._shelf import Shelf
from ._stats import Metrics, Stats, metrics
from ._worker import Worker


class TenfoldConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """Keeps full pages of keys and values, compressed, in a folder.

    Loads are asynchronous: a request whose prefix is stored waits until it is in its blocks while others run, and only
    then is scheduled. So a damaged page costs only recomputing its tokens, no layer of a model waits for the store, and
    graphs of whole models stay possible. With ``load="layers"`` it is scheduled at once, and its layers wait for theirs.
    docs/vllm.md has the settings.
    """

    _cache_hit_source = CacheHitSource.DISK

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        options = Options.parse(transfer.kv_connector_extra_config)
        shape = shape_of(vllm_config, kv_cache_config, options)
        pages = pages_of(vllm_config, shape, options)
        self._scheduler: Scheduler | None = None
        self._worker: Worker | None = None
        self._by_layer = options.by_layer
        # What was being handled already when a step began.
        self._handled: BaseException | None = None
        if role == KVConnectorRole.SCHEDULER:
            ranks = [identity_of(vllm_config, shape, options, pages, rank) for rank in range(shape.ranks)]
            shelves = [Shelf(options.path, identity) for identity in ranks]
            roles = {"loads": transfer.is_kv_consumer, "saves": transfer.is_kv_producer}
            self._scheduler = Scheduler(shape, shelves, by_layer=options.by_layer, **roles)
        else:
            rank = get_tensor_model_parallel_rank()
            shelf = Shelf(options.path, identity_of(vllm_config, shape, options, pages, rank), options.max_store_bytes)
            self._worker = Worker(shape, options, pages, shelf, rank)

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        """A graph of the whole model would wait for no layer."""
        return Options.parse(extra_config).by_layer

    @property
    def requires_kv_delivery(self) -> bool:
        """A page that is not stored is a miss later, no more."""
        return False

    # What the scheduler calls.

    def on_new_request(self, request: Any) -> None:
        self._scheduling.add(request)

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        self._scheduling.bind(gpu_block_pool)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        tokens = self._scheduling.lookup(request, num_computed_tokens)
        return tokens, bool(tokens) and not self._by_layer

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        (ids,) = blocks.get_block_ids()
        self._scheduling.plan_load(request, ids, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Plan:
        return self._scheduling.plan(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        self._scheduling.note_loads(connector_output.finished_recving or set(), connector_output.invalid_block_ids)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        self._scheduling.remove(request)
        return False, None

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished(request, [])

    def reset_cache(self) -> bool:
        return self._scheduling.clear()

    # What workers call.

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self._working.register(kv_caches, self._vllm_config.compilation_config.static_forward_context)

    def handle_preemptions(self, kv_connector_metadata: Any) -> None:
        # The first that a worker hears of a step, before anything is written to its blocks.
        self._working.before_writes(kv_connector_metadata)

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        super().bind_connector_metadata(connector_metadata)
        self._handled = sys.exc_info()[1]

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        # A graph of the whole model, and attention without metadata, wait for no layer.
        whole = forward_context.attn_metadata is None or forward_context.cudagraph_runtime_mode == CUDAGraphMode.FULL
        self._working.load(self._plan, by_layer=not whole)

    def wait_for_layer_load(self, layer_name: str) -> None:
        self._working.wait_for_layer(layer_name)

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Pages have all layers; they are taken behind the last one."""

    def wait_for_save(self) -> None:
        # vLLM calls this when a step fails, too, on the way out; what is in its blocks then is anything.
        if sys.exc_info()[1] is self._handled:
            self._working.save(self._plan)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        return None, self._working.take_finished(self._plan) or None

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._working.take_failed()

    def get_kv_connector_stats(self) -> Stats | None:
        return None if self._worker is None else self._worker.stats()

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.shutdown()

    # What the process that has the log and the metrics calls.

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Stats:
        return Stats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: dict[int, list[object]]
    ) -> Metrics:
        return metrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    @property
    def _scheduling(self) -> Scheduler:
        assert self._scheduler is not None, "vLLM asks its scheduler's connector for this"
        return self._scheduler

    @property
    def _working(self) -> Worker:
        assert self._worker is not None, "vLLM asks its workers' connectors for this"
        return self._worker

    @property
    def _plan(self) -> Plan:
        plan = self._get_connector_metadata()
        assert isinstance(plan, Plan)
        return plan
