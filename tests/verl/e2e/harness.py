"""One real training, what a collector received of it, and what verl itself left behind to compare with."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from verl_cpu.train import cluster, train

from akka_otel_callbacks.common.vocabulary import names
from tests.support.otlp_sink import OtlpSink, otlp_sink
from tests.support.points import Point, newest

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{PARENT_ID}-01"
DRIVER_POD, CLUSTER_POD = "pod-of-the-driver", "pod-of-the-cluster"


@dataclass(frozen=True)
class Case:
    """A training that tests look at. `extra` are Hydra overrides; `cluster`: on a Ray cluster that runs already;
    `external`: modules of these tests that verl loads in all of its processes; `loggers`: further ones of verl's."""

    recipe: str
    workers: int = 1
    steps: int = 3
    extra: tuple[str, ...] = ()
    cluster: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    external: str | None = None
    loggers: tuple[str, ...] = ()

    @property
    def everywhere(self) -> dict[str, str]:
        """Variables of all processes, those of a cluster included."""
        if self.external is None:
            return {}
        paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {"VERL_USE_EXTERNAL_MODULES": self.external, "PYTHONPATH": os.pathsep.join(paths)}


@dataclass(frozen=True)
class Run:
    """A training that has ended."""

    case: Case
    directory: Path
    status: int
    sink: OtlpSink

    @cached_property
    def points(self) -> list[Point]:
        return self.sink.metrics()

    @cached_property
    def log(self) -> list[tuple[int, dict[str, Any]]]:
        """verl's own log, from its backend `file`: every call of `Tracking.log`."""
        return [(row["step"], row["data"]) for row in _lines(self.directory / "log.jsonl")]

    @cached_property
    def steps(self) -> list[dict[str, Any]]:
        """The rows that complete a step, in order."""
        return [data for _, data in self.log if "training/global_step" in data or "train/loss" in data]

    @cached_property
    def rollouts(self) -> dict[int, list[dict[str, Any]]]:
        """verl's own dump of every completion, by step: its text, prompt and score."""
        return {int(path.stem): _lines(path) for path in (self.directory / "rollouts").glob("*.jsonl")}

    @cached_property
    def completions(self) -> dict[int, list[dict[str, Any]]]:
        """What the rollout server generated, by the version of the weights."""
        found = defaultdict(list)
        for line in _lines(self.directory / "completions.jsonl"):
            found[line["version"]].append(line)
        return found

    @cached_property
    def output(self) -> str:
        return (self.directory / "output.log").read_text()

    @property
    def run_id(self) -> str:
        (run_id,) = {point.resource[names.ATTR_RUN_ID.name] for point in self.points}
        return str(run_id)

    @cached_property
    def last(self) -> list[Point]:
        """The trainer's newest export: the latest step's board and all totals."""
        reported = [p for p in self.points if p.resource[names.ATTR_SERVICE_INSTANCE_ID.name] == f"{self.run_id}.1.0"]
        return newest([p for p in reported if p.export == reported[-1].export])

    def point(self, metric: Any, attributes: Mapping[Any, Any] | None = None) -> Point | None:
        """The metric's point in the trainer's newest export, None where it has none."""
        wanted = {key.name: value for key, value in (attributes or {}).items()}
        found = [p for p in self.last if p.name == metric.name and p.attributes == wanted]
        assert len(found) <= 1, f"{metric.name} is there {len(found)} times"
        return found[0] if found else None

    def value(self, metric: Any, attributes: Mapping[Any, Any] | None = None) -> float | None:
        point = self.point(metric, attributes)
        return None if point is None else point.value

    def by(self, metric: Any, attribute: Any) -> dict[str, Point]:
        """The metric's points in the trainer's newest export, by one attribute."""
        return {p.attributes[attribute.name]: p for p in self.last if p.name == metric.name}

    def placements(self) -> dict[tuple[str, int], list[Point]]:
        """The workers' placement, by role and rank, in order of arrival."""
        found = defaultdict(list)
        for point in self.points:
            if point.name == names.JOB_PLACEMENT.name:
                attributes = point.attributes
                found[attributes[names.ATTR_JOB_ROLE.name], attributes[names.ATTR_JOB_RANK.name]].append(point)
        return found


@contextmanager
def trained(case: Case, directory: Path) -> Iterator[Run]:
    """Trains with the logger `akka_otel` beside verl's own, as a user would."""
    left_by_verl = {
        "VERL_FILE_LOGGER_PATH": str(directory / "log.jsonl"),
        "VERL_CPU_COMPLETIONS": str(directory / "completions.jsonl"),
        "TENSORBOARD_DIR": str(directory / "events"),
    }
    dumps = not case.recipe.startswith(("sft", "one-step-off"))  # one_step_off fails where it should dump its rollouts
    extra = [f"trainer.rollout_data_dir={directory / 'rollouts'}"] if dumps else []
    with ExitStack() as ends_with_run:
        sink = ends_with_run.enter_context(otlp_sink())
        environ = {
            **os.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": sink.http,
            "OTEL_RESOURCE_ATTRIBUTES": f"team=red,{names.ATTR_PROJECT.name}=e2e",
            "TRACEPARENT": TRACEPARENT,
            "K8S_POD_NAME": DRIVER_POD,
            **left_by_verl,
            **case.everywhere,
            **case.environ,
        }
        if case.cluster:  # it knows nothing of the job's telemetry
            elsewhere = {**os.environ, "K8S_POD_NAME": CLUSTER_POD, **left_by_verl, **case.everywhere}
            environ["RAY_ADDRESS"] = ends_with_run.enter_context(cluster(case.workers, elsewhere))
        with open(directory / "output.log", "w") as output:
            status = train(
                case.recipe,
                directory,
                workers=case.workers,
                steps=case.steps,
                loggers=["console", "file", *case.loggers, "akka_otel"],
                extra=[*case.extra, *extra],
                environ=environ,
                output=output,
                timeout_s=900,
            )
        yield Run(case, directory, status, sink)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
