"""What verl's driver hands to the processes of a job, and that they name the same run."""

from __future__ import annotations

import json
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common import names
from akka_otel_callbacks.common.identity import RunIdentity
from akka_otel_callbacks.verl import environment

CONFIG = {
    "trainer": {"logger": ["console", "akka_otel"]},
    "actor_rollout_ref": {"model": {"path": "org/model"}, "actor": {"optim": {"lr": 1e-6}}, "rollout": {"n": 8}},
    "algorithm": {"adv_estimator": "grpo"},
}
RUN_ID = names.ATTR_RUN_ID.name


@pytest.fixture(autouse=True)
def _forgotten() -> Any:
    yield
    environment.forget()


@pytest.fixture
def ray() -> Any:
    """A stand-in for Ray that keeps what it is started with."""
    module = ModuleType("ray")
    module.started = []
    module.init = lambda *args, **kwargs: module.started.append((args, kwargs)) or SimpleNamespace(address="a")
    environment.install(module)
    return module


def start(ray: Any, config: Any, **kwargs: Any) -> dict[str, Any]:
    """What Ray gets from a program whose configuration is `config`, as verl's programs call it."""
    ray.init(**kwargs)
    return ray.started[-1][1]


@pytest.mark.parametrize(
    ("loggers", "expected"),
    [("akka_otel", True), (["console", "akka_otel"], True), (["console"], False), ("console", False), (None, False)],
)
def test_a_run_asks_by_its_loggers(loggers: Any, expected: bool) -> None:
    assert environment.asks({"trainer": {"logger": loggers}}) is expected


def test_the_driver_hands_on_identity_settings_and_trace(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")
    monkeypatch.setenv("TRACEPARENT", "00-1-2-01")
    monkeypatch.setenv("AKKA_OTEL_DIR", "/shared")
    monkeypatch.setenv("UNRELATED", "stays here")
    variables = start(ray, CONFIG)["runtime_env"]["env_vars"]
    run = variables.pop(environment.RUN_VARIABLE)
    assert variables == {
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=secret",
        "TRACEPARENT": "00-1-2-01",
        "AKKA_OTEL_DIR": "/shared",
    }
    handed_on = environment.forwarded({environment.RUN_VARIABLE: run})
    assert handed_on[RUN_ID] == environment.identity(CONFIG, {}).run_id
    assert handed_on[names.ATTR_RUN_METHOD.name] == "GRPO"


def test_what_is_true_of_one_process_or_pod_stays_with_it(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8S_POD_NAME", "driver")
    monkeypatch.setenv("NODE_NAME", "node")
    monkeypatch.setenv(
        "OTEL_RESOURCE_ATTRIBUTES",
        "team=red,k8s.pod.name=driver,k8s.container.name=c,host.name=h,service.instance.id=i",
    )
    variables = start(ray, CONFIG)["runtime_env"]["env_vars"]
    assert "driver" not in json.dumps(variables)
    assert variables.keys() == {environment.RUN_VARIABLE}
    handed_on = environment.forwarded(variables)
    assert handed_on["team"] == "red"
    assert not any(name.startswith(environment.OWN) for name in handed_on)


def test_a_worker_names_the_drivers_run_and_its_own_pod(ray: Any) -> None:
    variables = start(ray, CONFIG)["runtime_env"]["env_vars"]
    driver = environment.identity(CONFIG, {})
    environment.forget()  # the worker is another process
    worker = environment.identity(None, {**variables, "OTEL_RESOURCE_ATTRIBUTES": f"k8s.pod.name=mine,{RUN_ID}=other"})
    assert worker.attributes[names.ATTR_K8S_POD_NAME.name] == "mine"
    shared = {name: value for name, value in driver.attributes.items() if not name.startswith(environment.OWN)}
    assert shared.items() <= worker.attributes.items()


def test_what_the_user_gives_ray_stays(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    given_env = {"env_vars": {"OTEL_SERVICE_NAME": "theirs", "A": "1"}, "working_dir": "/w"}
    kwargs = start(ray, CONFIG, runtime_env=given_env, num_gpus=2)
    assert kwargs["num_gpus"] == 2
    assert kwargs["runtime_env"]["working_dir"] == "/w"
    assert kwargs["runtime_env"]["env_vars"]["OTEL_SERVICE_NAME"] == "theirs"
    assert kwargs["runtime_env"]["env_vars"]["A"] == "1"
    assert given_env == {"env_vars": {"OTEL_SERVICE_NAME": "theirs", "A": "1"}, "working_dir": "/w"}


def test_ray_is_not_given_what_the_submitted_job_has_already(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray refuses to start where both have the same variable."""
    job = {"runtime_env": {"env_vars": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}}}
    monkeypatch.setenv(environment.JOB_CONFIG, json.dumps(job))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")
    assert start(ray, CONFIG)["runtime_env"]["env_vars"].keys() == {environment.RUN_VARIABLE}


@pytest.mark.parametrize("config", [None, {}, {"trainer": {"logger": ["console"]}}, object()])
def test_a_job_that_does_not_ask_is_left_alone(ray: Any, config: Any) -> None:
    assert start(ray, config, num_gpus=1) == {"num_gpus": 1}


def test_a_failure_starts_ray_as_it_was_asked_to(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "to_forward", lambda *_: 1 / 0)
    assert start(ray, CONFIG, num_gpus=1) == {"num_gpus": 1}
    assert len(ray.started) == 1


def test_an_error_of_rays_own_is_the_users(ray: Any) -> None:
    def fail(**_: Any) -> None:
        raise ValueError("no such address")

    ray.init = fail
    environment.install(ray)
    with pytest.raises(ValueError, match="no such address"):
        start(ray, CONFIG)


def test_another_run_of_the_same_process_has_another_id() -> None:
    first = environment.identity(CONFIG, {}).run_id
    assert environment.identity(CONFIG, {}).run_id == first
    environment.forget()
    assert environment.identity(CONFIG, {}).run_id != first


def test_a_configuration_of_hydra_says_what_a_plain_one_says() -> None:
    omegaconf = pytest.importorskip("omegaconf", reason="comes with verl")
    unset = {**CONFIG, "reward": {"model": "???"}}
    config = omegaconf.OmegaConf.create(unset)
    assert environment.asks(config)
    assert environment.identity(config, {}).attributes == environment.identity(unset, {}).attributes


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_any_attribute_survives_the_way(attributes: dict[str, str]) -> None:
    run = RunIdentity({RUN_ID: "r", **attributes})
    shared = {name: value for name, value in run.attributes.items() if not name.startswith(environment.OWN)}
    assert environment.forwarded(environment.to_forward(run, {})) == shared


@given(st.text())
def test_any_value_of_the_variable_is_read(value: str) -> None:
    assert all(
        isinstance(text, str)
        for pair in environment.forwarded({environment.RUN_VARIABLE: value}).items()
        for text in pair
    )
