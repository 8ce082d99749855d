"""A rollout server's metrics without a GPU: vLLM's real AsyncLLM and loggers, an engine that is not there, a real Ray.

Run by test_vllm.py in a process of its own, with vLLM's folder on the path. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from types import SimpleNamespace
from typing import Any
from unittest import mock

import ray

RUN = "akka.optimize.training.run.id=run-1,akka.optimize.training.run.attempt=2"
WAIT_S = 60
FORGOTTEN_S = 40
"""After it Ray shows no gauge that was not set again."""


def config() -> Any:
    """As much of vLLM's configuration as its loggers read."""
    return SimpleNamespace(
        observability_config=SimpleNamespace(
            show_hidden_metrics=False,
            kv_cache_metrics=False,
            enable_mfu_metrics=False,
            cudagraph_metrics=False,
            otlp_traces_endpoint=None,
        ),
        model_config=SimpleNamespace(served_model_name="m", max_model_len=128, is_diffusion=False),
        scheduler_config=SimpleNamespace(stream_interval=1),
        speculative_config=None,
        kv_transfer_config=None,
        lora_config=None,
        cache_config=SimpleNamespace(metrics_info=lambda: {"block_size": "16"}, num_gpu_blocks=1),
        parallel_config=SimpleNamespace(data_parallel_size=1),
        profiler_config=SimpleNamespace(profiler=None),
    )


def engine(log_stats: bool) -> Any:
    """vLLM's AsyncLLM, built by its own constructor around a mock of the processes that it would start."""
    from vllm.v1.engine import async_llm

    absent = ("renderer_from_config", "InputProcessor", "OutputProcessor", "maybe_register_config_serialize_by_value")
    with (
        mock.patch.multiple(async_llm, **{name: mock.Mock() for name in absent}),
        mock.patch.object(async_llm.EngineCoreClient, "make_async_mp_client") as client,
    ):
        client.return_value = mock.Mock(engine_ranks_managed=[0])
        return async_llm.AsyncLLM(vllm_config=config(), executor_class=mock.Mock(), log_stats=log_stats)


@ray.remote
class Server:
    def start(self, log_stats: bool) -> dict[str, Any]:
        import akka_otel_callbacks.verl.plugin  # noqa: F401 - verl loads it before it imports vLLM

        self.engine = engine(log_stats)
        manager = self.engine.logger_manager
        return {"loggers": [type(logger).__name__ for logger in manager.stat_loggers] if manager else []}

    def generate(self) -> dict[str, Any]:
        from prometheus_client import generate_latest
        from vllm.v1.metrics.stats import IterationStats, SchedulerStats

        scheduler, iteration = SchedulerStats(), IterationStats()
        scheduler.num_running_reqs, scheduler.kv_cache_usage = 3, 0.25
        iteration.num_generation_tokens = 7
        iteration.time_to_first_tokens_iter = [0.05]
        manager = self.engine.logger_manager
        manager.record(scheduler_stats=scheduler, iteration_stats=iteration, engine_idx=0)
        manager.record_sleep_state(0, 0)

        from akka_otel_callbacks.common import guard

        return {"own": generate_latest().decode(), "failures": [*map(str, guard.failures)]}


def start(environ: dict[str, str]) -> Any:
    return Server.options(runtime_env={"env_vars": {**shared(), **environ}}).remote()  # type: ignore[attr-defined]


def shared() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "VLLM_TARGET_DEVICE": "cpu"}


def scraped() -> list[str]:
    """The series of vLLM on Ray's endpoint, as soon as there are some of each kind."""
    port = ray.nodes()[0]["MetricsExportPort"]
    deadline = time.monotonic() + WAIT_S
    lines: list[str] = []
    while time.monotonic() < deadline:
        body = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
        lines = [line for line in body.splitlines() if line.startswith("ray_vllm_")]
        if any("time_to_first_token" in line for line in lines) and any("generation_tokens" in line for line in lines):
            break
        time.sleep(1)
    return lines


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=150_000_000, logging_level="ERROR")
    ours = start({"AKKA_OTEL_RUN": RUN, "K8S_POD_NAME": "pod-x"})
    quiet = start({"AKKA_OTEL_RUN": RUN})
    foreign = start({})
    found = {
        "ours": ray.get(ours.start.remote(True)),
        "disabled": ray.get(quiet.start.remote(False)),
        "foreign": ray.get(foreign.start.remote(True)),
        "foreign_disabled": ray.get(foreign.start.remote(False)),
    }
    found["ours"] |= ray.get(ours.generate.remote())
    scraped()
    time.sleep(FORGOTTEN_S)
    print(json.dumps({**found, "scraped": scraped()}))
    ray.shutdown()


if __name__ == "__main__":
    main()
