"""The configurations that the examples show are ones that verl takes."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from akka_otel_callbacks.common.run.identity import POD_VARIABLES
from akka_otel_callbacks.verl import environment
from akka_otel_callbacks.verl.settings import run_attributes

hydra = pytest.importorskip("hydra", reason="comes with verl")
omegaconf = pytest.importorskip("omegaconf", reason="comes with verl")

EXAMPLES = Path(__file__).parents[2] / "examples" / "verl"
CONFIGS = {"verl.trainer.main_ppo": "ppo_trainer", "verl.trainer.sft_trainer": "sft_trainer_engine"}


def composed(arguments: list[str]) -> Any:
    """verl's whole configuration as its program would have it."""
    (program,) = CONFIGS.keys() & set(arguments)
    overrides = arguments[arguments.index(program) + 1 :]
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        return omegaconf.OmegaConf.to_container(hydra.compose(CONFIGS[program], overrides))


def arguments_of(script: Path, directory: Path) -> list[str]:
    """What a script starts Python with."""
    python = directory / "python"
    python.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    run = subprocess.run(["bash", script], env={**os.environ, "PYTHON": str(python)}, check=True, capture_output=True)
    return list(json.loads(run.stdout))


@pytest.mark.parametrize("name", ["grpo.sh", "sft.sh"])
def test_a_script_asks_for_our_logger_in_a_configuration_that_verl_takes(name: str, tmp_path: Path) -> None:
    config = composed(arguments_of(EXAMPLES / name, tmp_path))
    assert environment.asks(config)
    said = {attribute.name.rpartition(".")[2]: value for attribute, value in run_attributes(config).items()}
    assert said["base_model"] == "Qwen/Qwen2.5-0.5B-Instruct"
    assert said["method"] == name.removesuffix(".sh").upper()


def test_the_job_on_kubernetes_names_every_pods_own_place() -> None:
    yaml = pytest.importorskip("yaml", reason="it is a file for Kubernetes")
    spec = yaml.safe_load((EXAMPLES / "rayjob.yaml").read_text())["spec"]
    assert environment.asks(composed(shlex.split(spec["entrypoint"].replace('"', '\\"'))))
    assert all(name.startswith("OTEL_") for name in yaml.safe_load(spec["runtimeEnvYAML"])["env_vars"])
    cluster = spec["rayClusterSpec"]
    known = {name for variables in POD_VARIABLES.values() for name in variables}
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        assert {variable["name"] for variable in container["env"]} <= known
        assert len(container["env"]) == len(POD_VARIABLES)
        assert all("fieldRef" in variable["valueFrom"] for variable in container["env"])
