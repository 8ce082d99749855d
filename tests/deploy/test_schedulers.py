"""The jobs of `deploy/` for Kubernetes, Slurm and Ray say who the run is, in the words that the package reads."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from akka_otel_callbacks.common.run.identity import POD_VARIABLES, identify
from akka_otel_callbacks.common.vocabulary import names
from tests.deploy.promtool import REGISTRY
from tools.generate import ROOT

FOLDER = ROOT / "deploy"
JOBS = ["job-otlp", "job-scraped"]


def manifest(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / "kubernetes" / f"{name}.yaml").read_text(encoding="utf-8"))


def variables(job: dict[str, Any]) -> dict[str, str]:
    """What the container's environment is, as Kubernetes fills it in."""
    template = job["spec"]["template"]
    fields = {"metadata.name": "pod-1", "spec.nodeName": "node-1", "status.hostIP": "10.0.0.1"}
    fields |= {f"metadata.labels['{label}']": value for label, value in template["metadata"]["labels"].items()}
    found: dict[str, str] = {}
    for variable in template["spec"]["containers"][0]["env"]:
        field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        value = fields[field] if field else variable["value"]
        found[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], value)
    return found


@pytest.mark.parametrize("name", JOBS)
def test_a_pod_says_which_run_it_is_and_where_it_runs(name: str) -> None:
    job = manifest(name)
    environ = variables(job)
    attributes = identify(environ, engine={}).attributes
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert attributes[names.ATTR_RUN_ID.name] == labels["run"] == job["metadata"]["name"]
    assert attributes[names.ATTR_PROJECT.name] == labels["project"]
    assert attributes[names.ATTR_K8S_POD_NAME.name] == "pod-1"
    assert attributes[names.ATTR_K8S_NODE_NAME.name] == "node-1"
    assert {"POD_NAME", "NODE_NAME"} <= {known for variables in POD_VARIABLES.values() for known in variables}


def test_otlp_goes_to_the_agent_of_the_pod_s_node() -> None:
    assert variables(manifest("job-otlp"))["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://10.0.0.1:4318"


def test_a_scrape_finds_the_port_that_the_job_opens() -> None:
    job, monitor = manifest("job-scraped"), manifest("podmonitor")
    template, environ = job["spec"]["template"], variables(job)
    [port] = template["spec"]["containers"][0]["ports"]
    assert environ["OTEL_METRICS_EXPORTER"] == "prometheus"
    assert environ["OTEL_EXPORTER_PROMETHEUS_HOST"] == "0.0.0.0", "another pod reaches it"
    assert template["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": environ["OTEL_EXPORTER_PROMETHEUS_PORT"],
        "prometheus.io/path": "/metrics",
    }
    assert str(port["containerPort"]) == environ["OTEL_EXPORTER_PROMETHEUS_PORT"]
    assert [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]] == [port["name"]]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


def stand_in(folder: Path, name: str) -> None:
    """A program that prints its arguments and the variables that matter, in the place of one that is not here."""
    script = folder / name
    script.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\nenv | grep -E "^(OTEL|AKKA)_"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


def run(script: Path, folder: Path, environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "AKKA_", "SLURM_"))}
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", str(script), *arguments]
    return subprocess.run(command, env={**kept, "PATH": path, **environ}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("restarts", "attempt"), [(None, 1), ("0", 1), ("2", 3)])
def test_slurm_s_job_is_the_run_and_a_requeued_one_its_next_attempt(
    restarts: str | None, attempt: int, tmp_path: Path
) -> None:
    for name in ("srun", "scontrol"):
        stand_in(tmp_path, name)
    slurm = {
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NAME": "math",
        "SLURM_JOB_NODELIST": "node-[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_SUBMIT_DIR": "/home/me",
        "OTEL_RESOURCE_ATTRIBUTES": "team=red",
        **({} if restarts is None else {"SLURM_RESTART_COUNT": restarts}),
    }
    done = run(FOLDER / "slurm/train.sbatch", tmp_path, slurm, "train.py", "--lr", "1e-6")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["torchrun", "--nnodes=2"]
    assert {"train.py", "--lr", "1e-6", "AKKA_OTEL_DIR=/home/me/akka-otel/slurm-17"} <= {*lines}
    said = next(line for line in lines if line.startswith("OTEL_RESOURCE_ATTRIBUTES=")).partition("=")[2]
    attributes = identify({"OTEL_RESOURCE_ATTRIBUTES": said}, engine={}).attributes
    assert (attributes[names.ATTR_RUN_ID.name], attributes[names.ATTR_RUN_ATTEMPT.name]) == ("slurm-17", attempt)
    assert (attributes[names.ATTR_PROJECT.name], attributes["team"]) == ("math", "red")


def test_ray_s_job_gets_the_run_in_its_runtime_environment(tmp_path: Path) -> None:
    stand_in(tmp_path, "ray")
    environ = {"RUN": "grpo-17", "PROJECT": "math", "ATTEMPT": "2", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}
    done = run(FOLDER / "ray/submit.sh", tmp_path, environ, "python", "-m", "verl.trainer.main_ppo")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:4] == ["job", "submit", "--submission-id", "grpo-17-2"]
    assert lines[lines.index("--") + 1 :][:3] == ["python", "-m", "verl.trainer.main_ppo"]
    given = json.loads(lines[lines.index("--runtime-env-json") + 1])["env_vars"]
    attributes = identify(given, engine={}).attributes
    assert given["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://c:4318"
    assert (attributes[names.ATTR_RUN_ID.name], attributes[names.ATTR_RUN_ATTEMPT.name]) == ("grpo-17", 2)
    assert attributes[names.ATTR_JOB_SUBMISSION_ID.name] == "grpo-17-2"


def test_a_run_on_ray_without_an_id_is_an_error_of_one_line(tmp_path: Path) -> None:
    stand_in(tmp_path, "ray")
    done = run(FOLDER / "ray/submit.sh", tmp_path, {"RUN": ""}, "python")
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.strip().endswith("the run has no ID: set RUN")


def test_every_attribute_is_the_registry_s() -> None:
    files = [path for name in ("kubernetes", "slurm", "ray") for path in (FOLDER / name).iterdir()]
    found = {
        name for path in files for name in re.findall(r"akka\.optimize\.training\.[\w.]+", path.read_text("utf-8"))
    }
    assert len(found) >= 4
    assert found <= REGISTRY.attributes.keys()
