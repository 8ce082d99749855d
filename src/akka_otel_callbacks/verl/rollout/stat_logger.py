"""The stat logger that a rollout server of a run gets. It imports vLLM, and is imported in such a server only."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorProm
from vllm.v1.metrics.loggers import AggregateStatLoggerBase, PrometheusStatLogger
from vllm.v1.metrics.perf import PerfMetricsProm
from vllm.v1.spec_decode.metrics import SpecDecodingProm

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.verl.rollout.ray_metrics import Counter, Gauge, Histogram, hold_gauges


class _SpecDecoding(SpecDecodingProm):  # type: ignore[misc]
    _counter_cls = Counter


class _KVConnector(KVConnectorProm):  # type: ignore[misc]
    _gauge_cls, _counter_cls, _histogram_cls = Gauge, Counter, Histogram


class _PerfMetrics(PerfMetricsProm):  # type: ignore[misc]
    _counter_cls = Counter


class _RayStatLogger(PrometheusStatLogger):  # type: ignore[misc]
    """vLLM's metrics, all of them, on Ray's endpoint in place of the server's own."""

    _gauge_cls, _counter_cls, _histogram_cls = Gauge, Counter, Histogram
    _spec_decoding_cls, _kv_connector_cls, _perf_metrics_cls = _SpecDecoding, _KVConnector, _PerfMetrics


class RunStatLogger(AggregateStatLoggerBase):  # type: ignore[misc]
    """Holds that logger and does not derive from it: where a logger derives from `PrometheusStatLogger`, vLLM drops its
    own one, and with it the server's /metrics. Failures do not reach the engine."""

    def __init__(self, vllm_config: Any, engine_indexes: list[int]) -> None:
        self._logger = guarded(_RayStatLogger)(vllm_config, engine_indexes)
        hold_gauges()

    @guarded
    def record(self, *args: Any, **kwargs: Any) -> None:
        if self._logger is not None:
            self._logger.record(*args, **kwargs)

    @guarded
    def record_sleep_state(self, *args: Any, **kwargs: Any) -> None:
        if self._logger is not None:
            self._logger.record_sleep_state(*args, **kwargs)

    @guarded
    def log_engine_initialized(self) -> None:
        if self._logger is not None:
            self._logger.log_engine_initialized()
