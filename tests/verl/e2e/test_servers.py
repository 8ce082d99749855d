"""A real training on a real Ray with GPUs: the queries about it, asked of a real Prometheus and VictoriaMetrics."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("verl_cpu", reason="it needs the environment of constraints/verl.txt with examples/verl_cpu")

from akka_otel_callbacks.common.vocabulary import names
from tests.fake_nvml import FakeDriver, build
from tests.servers import queries
from tests.servers.ask import check
from tests.servers.dashboards import CHECKS
from tests.servers.expected import WINDOW_S, joined_with, without_dialect
from tests.servers.live import Live, Recording, live_servers
from tests.servers.queries import Query
from tests.servers.replay import replayed
from tests.servers.world import Answer, World
from tests.support.otlp_sink import wait_until
from tests.verl.e2e import held
from tests.verl.e2e.harness import Case, Run, trained
from tools.prometheus import Dialect, series_name

UUIDS = tuple(f"GPU-{digit * 8}-aaaa-bbbb-cccc-000000000000" for digit in "12")
PERCENT = dict(zip(UUIDS, (61, 17), strict=True))
RUN, STEPS = "grpo", 3
SETTINGS = (
    "actor_rollout_ref.actor.use_kl_loss=True",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "data.train_batch_size=2",
    "trainer.save_freq=1",
    "trainer.test_freq=1",
)
COUNTER = series_name(names.RL_STEP_COUNT, "scrape")
TRAINED_S = 600.0


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    """A machine with two GPUs, as far as NVML can tell, both to us and to Ray."""
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler to build the fake libnvidia-ml.so.1 with")
    directory = tmp_path_factory.mktemp("nvml")
    driver = FakeDriver(build(directory), directory / "state")
    for uuid, percent in PERCENT.items():
        driver.gpu(uuid, gpu_percent=percent)
    return driver


@pytest.fixture(scope="module")
def world(driver: FakeDriver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A training with two workers, seven hours old."""
    folder = tmp_path_factory.mktemp("servers")
    for name in ("live", "run", "replay"):
        (folder / name).mkdir()
    with live_servers(folder / "live") as live:
        recording = recorded(live, driver, folder / "run")
    with replayed([recording], folder / "replay") as replay:
        yield World([recording], replay)


def recorded(live: Live, driver: FakeDriver, folder: Path) -> Recording:
    """Trains, and looks at the servers when the last step has been reported."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        of_ray = free.getsockname()[1]
    live.scrape("ray", [f"127.0.0.1:{of_ray}"])
    environ = {
        **driver.environment,
        **live.variables(),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "OTEL_RESOURCE_ATTRIBUTES": f"{names.ATTR_RUN_ID.name}={RUN},{names.ATTR_PROJECT.name}=triage",
        held.FOLDER: str(folder),
        held.STEP: str(STEPS),
    }
    case = Case(
        "tools",
        workers=len(UUIDS),
        steps=STEPS,
        extra=(*SETTINGS, f"+ray_kwargs.ray_init._metrics_export_port={of_ray}"),
        environ=environ,
        external="tests.verl.e2e.fills,tests.verl.e2e.held",
    )

    def train() -> Run:
        with trained(case, folder) as run:
            return run

    began_s = time.time()
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(train)
        try:
            wait_until(lambda: held.is_held(folder) or training.done(), TRAINED_S)
            assert not training.done(), training.result().output[-3000:]
            for server in (live.scraping, live.receiving):
                wait_until(lambda server=server: server.query(f"{COUNTER} == {STEPS}"), 60)
            wait_until(lambda: live.scraping.query("ray_node_gpus_utilization"), 60)
            time.sleep(3)
            recording = live.record(began_s)
        finally:
            held.release(folder)
        run = training.result()
    assert run.status == 0, run.output[-3000:]
    return replace(recording, began_s=min(point.time_ns for point in recording.files) / 1e9)


NO_VLLM = "vLLM's wheel has 700 MB: `make test-vllm` checks these labels on Ray's own endpoint"
HEALTHY = "nothing is wrong with this run"
NOT_SAID = "the scripted NVML does not say it"
NO_RESULT = {
    "docs/verl.md, 1": NO_VLLM,
    "Rollout engine": NO_VLLM,
    "Rollout engine, awake": NO_VLLM,
    "gpus.json: vLLM's cache (A)": NO_VLLM,
    "gpus.json: vLLM's requests (A)": NO_VLLM,
    "gpus.json: vLLM's requests (B)": NO_VLLM,
    "gpus.json: Utilization, as DCGM measured it (A)": "no dcgm-exporter: tests/servers",
    "gpus.json: Energy (A)": NOT_SAID,
    "gpus.json: Temperature (B)": NOT_SAID,
    "gpus.json: Clocks held down, by reason (A)": HEALTHY,
    "gpus.json: Clocks held down, by reason (B)": HEALTHY,
    "gpus.json: Clocks held down, by reason (C)": HEALTHY,
    "gpus.json: Code of the latest XID (A)": HEALTHY,
    "gpus.json: Memory errors (A)": NOT_SAID,
    "gpus.json: Repairs that wait for a reset (A)": NOT_SAID,
    "gpus.json: Remapped rows (A)": NOT_SAID,
    "gpus.json: Retired pages (A)": NOT_SAID,
    "rl.json: Not a number (A)": HEALTHY,
    "rl.json: Negative rewards (A)": "the rewards of this run are not negative",
    "rl.json: Failures of graders (A)": HEALTHY,
    "rl.json: Waiting (A)": "trainer and rollout take turns on the same devices",
}
"""Queries without a result here, and why."""
TOO_SHORT = {"rl.json: Meanwhile (A)": "a validation or a save may be over before anybody scrapes it"}
"""Queries that may have a result or none."""


def utilization_of_ray(answer: Answer) -> None:
    """The join of the reference documents: Ray's own series with the role and the rank of the worker on that GPU."""
    found = {sample.labels["GpuUuid"]: sample for sample in answer.now}
    assert {gpu: sample.value for gpu, sample in found.items()} == PERCENT
    roles = {sample.labels["akka_optimize_training_job_role"] for sample in answer.now}
    ranks = {sample.labels["akka_optimize_training_job_rank"] for sample in answer.now}
    assert len(roles) == 1
    assert ranks == {"0", "1"}


CHECKS_HERE = {
    "Find the GPUs a run uses": utilization_of_ray,
    "gpus.json: Utilization, as Ray measured it (A)": joined_with(PERCENT),
}
ALL = [
    *(query for query in queries.of_pages() if query.where.startswith("docs/verl.md")),
    *(query for query in queries.of_reference_documents() if "GPUs" in query.where or "engine" in query.where),
    *(query for query in queries.of_deploy() if "/rl.json" in query.where or "/gpus.json" in query.where),
]


@pytest.mark.parametrize(
    ("query", "dialect"),
    [pytest.param(query, dialect, id=f"{query.where}, {dialect}") for query in ALL for dialect in query.dialects],
)
def test_a_query_gives_what_the_run_had(world: World, query: Query, dialect: Dialect) -> None:
    what = without_dialect(query.where)
    variables = {"run": RUN, "attempt": "1", "project": "triage", "__rate_interval": f"{WINDOW_S:.0f}s"}
    answer = world.ask(query, dialect, variables)
    if answer.minutes or what not in TOO_SHORT:
        check(answer, CHECKS_HERE.get(what, CHECKS.get(what)), NO_RESULT.get(what))


def test_the_tables_name_queries_that_exist() -> None:
    assert {*NO_RESULT, *TOO_SHORT, *CHECKS_HERE} <= {without_dialect(query.where) for query in ALL}
