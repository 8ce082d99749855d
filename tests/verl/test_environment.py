"""What verl's driver hands to the processes of a job. `test_ray_jobs.py` has jobs that Ray runs."""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.run import attempt, handed_on, pairs
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.verl import environment, ray_calls, run
from akka_otel_callbacks.verl.state import STATE

CONFIG = {
    "trainer": {"logger": ["console", "akka_otel"]},
    "actor_rollout_ref": {"model": {"path": "org/model"}, "actor": {"optim": {"lr": 1e-6}}, "rollout": {"n": 8}},
    "algorithm": {"adv_estimator": "grpo"},
}
RUN_ID, ATTEMPT = names.ATTR_RUN_ID.name, names.ATTR_RUN_ATTEMPT.name
SERVICE = names.ATTR_SERVICE_NAME.name
SECRETS = ("AKKA_HTTP_TOKEN", "AKKA_LICENSE_KEY", "AKKAOTEL", "AKKA_", "MY_OTEL_KEY")


@pytest.fixture(autouse=True)
def _no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(environment.PREFIXES)]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(attempt, "_begun", {})  # other tests of this process had runs of these names


@pytest.fixture
def ray() -> Any:
    """A stand-in for Ray that keeps what it is started with."""
    module: Any = ModuleType("ray")
    module.started = []
    module.init = lambda *args, **kwargs: module.started.append((args, kwargs)) or SimpleNamespace(address="a")
    ray_calls.install(module)
    return module


def start(ray: Any, config: Any, **kwargs: Any) -> dict[str, Any]:
    """What Ray gets from a program whose configuration is `config`, as verl's programs call it."""
    ray.init(**kwargs)
    return ray.started[-1][1]


def variables(ray: Any, **env_vars: str) -> dict[str, str]:
    """The job's variables where the user gives it some."""
    return start(ray, CONFIG, runtime_env={"env_vars": env_vars})["runtime_env"]["env_vars"]


def test_the_driver_hands_on_settings_and_trace(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")
    monkeypatch.setenv("TRACEPARENT", "00-1-2-01")
    monkeypatch.setenv("AKKA_OTEL_DIR", "/shared")
    monkeypatch.setenv("UNRELATED", "stays here")
    given = start(ray, CONFIG)["runtime_env"]["env_vars"]
    assert handed_on.is_active(given)
    del given[handed_on.RUN_VARIABLE]
    assert given == {
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=secret",
        "TRACEPARENT": "00-1-2-01",
        "AKKA_OTEL_DIR": "/shared",
    }


def test_the_trainers_process_and_not_the_driver_says_who_the_run_is(ray: Any) -> None:
    """A second training of the driver may find Ray still up, with what the first one handed on."""
    told = handed_on.forwarded(start(ray, CONFIG)["runtime_env"]["env_vars"])
    assert not {RUN_ID, ATTEMPT, names.ATTR_RUN_METHOD.name, names.ATTR_RUN_LEARNING_RATE.name} & told.keys()
    assert not run.is_known()


def test_an_id_that_nobody_can_use_is_not_handed_on(ray: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It would count as the name of all the trainings that the driver starts, which have IDs of their own."""
    STATE.trainings_launched[" "] = 3
    told = handed_on.forwarded(variables(ray, OTEL_RESOURCE_ATTRIBUTES=f"{RUN_ID}=%20,team=blue"))
    assert not {RUN_ID, ATTEMPT} & told.keys()
    assert told["team"] == "blue"
    assert f"{RUN_ID}=' ' is not an ID (at most 256 printable characters" in caplog.text


@pytest.mark.parametrize("name", SECRETS)
def test_variables_of_other_programs_stay_where_they_are(name: str, ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "secret")
    assert "secret" not in json.dumps(start(ray, CONFIG))


def test_empty_variables_do_not_hide_those_of_a_node(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "AKKA_OTEL_DIR", "TRACEPARENT", "OTEL_SERVICE_NAME"):
        monkeypatch.setenv(name, "")
    assert start(ray, CONFIG)["runtime_env"]["env_vars"].keys() == {handed_on.RUN_VARIABLE}


OWN = (
    "k8s.pod.name k8s.pod.uid k8s.pod.ip k8s.node.name k8s.node.uid k8s.container.name k8s.container.restart_count "
    "host.name host.id process.pid container.id container.image.name service.instance.id os.type device.id "
    "cloud.availability_zone cloud.resource_id"
).split()
JOB_WIDE = (
    "k8s.cluster.name k8s.cluster.uid k8s.namespace.name k8s.job.name cloud.region cloud.provider cloud.account.id "
    "deployment.environment.name service.version service.namespace team hostile podium"
).split()


def test_what_is_true_of_one_process_pod_or_node_stays_with_it(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8S_POD_NAME", "of-driver")
    monkeypatch.setenv("NODE_NAME", "of-driver")
    own = [f"{name}=of-driver" for name in OWN]
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", ",".join([*own, *(f"{name}=shared" for name in JOB_WIDE)]))
    given = start(ray, CONFIG)["runtime_env"]["env_vars"]
    assert "of-driver" not in json.dumps(given)
    assert given.keys() == {handed_on.RUN_VARIABLE}
    told = handed_on.forwarded(given)
    assert dict.fromkeys(JOB_WIDE, "shared").items() <= told.items()


def test_a_worker_knows_its_own_place_better_than_the_driver(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.job.name=driver,k8s.cluster.name=c,team=red")
    given = start(ray, CONFIG)["runtime_env"]["env_vars"]
    own = "k8s.pod.name=mine,k8s.job.name=worker,team=blue"
    worker = run.identity(None, {**given, "OTEL_RESOURCE_ATTRIBUTES": own}).attributes
    assert (worker["k8s.pod.name"], worker["k8s.job.name"]) == ("mine", "worker")
    assert (worker["k8s.cluster.name"], worker["team"]) == ("c", "red")


def test_what_the_user_gives_ray_stays(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    given_env = {"env_vars": {"OTEL_SERVICE_NAME": "theirs", "A": "1"}, "working_dir": "/w"}
    kwargs = start(ray, CONFIG, runtime_env=given_env, num_gpus=2)
    assert kwargs["num_gpus"] == 2
    assert kwargs["runtime_env"]["working_dir"] == "/w"
    assert kwargs["runtime_env"]["env_vars"]["OTEL_SERVICE_NAME"] == "theirs"
    assert kwargs["runtime_env"]["env_vars"]["A"] == "1"
    assert given_env == {"env_vars": {"OTEL_SERVICE_NAME": "theirs", "A": "1"}, "working_dir": "/w"}


def trainer(environ: dict[str, str]) -> dict[str, Any]:
    """Who the run is to a process of the job with these variables."""
    run.end()
    STATE.trainings_ended.clear()
    return dict(run.identity(CONFIG, environ).attributes)


def test_the_users_variables_win_over_the_drivers(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "drivers")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"{RUN_ID}=drivers,{ATTEMPT}=2,team=red")
    theirs = trainer(
        variables(ray, OTEL_SERVICE_NAME="theirs", OTEL_RESOURCE_ATTRIBUTES=f"{RUN_ID}=theirs,{ATTEMPT}=7")
    )
    assert (theirs[RUN_ID], theirs[ATTEMPT], theirs[SERVICE], theirs["team"]) == ("theirs", 7, "theirs", "red")
    named = trainer(variables(ray, OTEL_RESOURCE_ATTRIBUTES=f"{SERVICE}=theirs"))
    assert (named[RUN_ID], named[ATTEMPT], named[SERVICE]) == ("drivers", 2, "theirs")
    drivers = trainer(variables(ray))
    assert (drivers[RUN_ID], drivers[ATTEMPT], drivers[SERVICE]) == ("drivers", 2, "drivers")


def test_ray_is_not_given_what_the_submitted_job_has_already(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray refuses to start where both have the same variable."""
    job = {"runtime_env": {"env_vars": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}}}
    monkeypatch.setenv(environment.JOB_CONFIG, json.dumps(job))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")
    assert start(ray, CONFIG)["runtime_env"]["env_vars"].keys() == {handed_on.RUN_VARIABLE}


@pytest.mark.parametrize("config", [None, {}, {"trainer": {"logger": ["console"]}}, object()])
def test_a_job_that_does_not_ask_is_left_alone(ray: Any, config: Any) -> None:
    assert start(ray, config, num_gpus=1) == {"num_gpus": 1}


def test_a_job_of_which_everything_is_switched_off_knows_that(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKKA_OTEL_DISABLE", "1")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    assert start(ray, CONFIG)["runtime_env"]["env_vars"] == {"AKKA_OTEL_DISABLE": "1"}


def test_a_failure_starts_ray_as_it_was_asked_to(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "to_launch", lambda *_: 1 / 0)
    assert start(ray, CONFIG, num_gpus=1) == {"num_gpus": 1}
    assert len(ray.started) == 1


def test_an_error_of_rays_own_is_the_users(ray: Any) -> None:
    def fail(**_: Any) -> None:
        raise ValueError("no such address")

    ray.init = fail
    ray_calls.install(ray)
    with pytest.raises(ValueError, match="no such address"):
        start(ray, CONFIG)


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_any_attribute_survives_the_way(attributes: dict[str, str]) -> None:
    shared = {name: value for name, value in attributes.items() if not name.startswith(handed_on.OWN)}
    assert handed_on.forwarded({handed_on.RUN_VARIABLE: handed_on.written(attributes)}) == shared


def test_what_is_no_utf_8_is_replaced() -> None:
    (value,) = handed_on.forwarded({handed_on.RUN_VARIABLE: handed_on.written({"team": "r\udce9d"})}).values()
    assert value == "r?d"


@given(st.text())
def test_any_value_of_the_variables_is_read(value: str) -> None:
    for variable in (handed_on.RUN_VARIABLE, pairs.ATTRIBUTES):
        environ = {variable: value, environment.SERVICE: value}
        told = handed_on.forwarded(environment.to_launch(environ, {}))
        assert all(isinstance(text, str) for pair in told.items() for text in pair)


class Actor:
    """As much of one of Ray's actor classes as the hook touches."""

    def __init__(self, name: str) -> None:
        self.__ray_metadata__ = SimpleNamespace(class_name=name)


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes an actor by its class's name, and gives the variables that Ray gets for it."""
    ray: Any = ModuleType("ray")
    ray.is_initialized = lambda: True
    ray.runtime_env = ModuleType("ray.runtime_env")
    ray.runtime_env.RuntimeEnv = dict
    job: dict[str, Any] = {}
    ray.get_runtime_context = lambda: SimpleNamespace(runtime_env=job)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.runtime_env", ray.runtime_env)
    made: list[Any] = []

    class ActorClass(Actor):
        def _remote(self, args: Any = None, kwargs: Any = None, **options: Any) -> None:
            made.append(options)

    actors: Any = ModuleType("ray.actor")
    actors.ActorClass = ActorClass
    ray_calls.install_actors(actors)

    def make(name: str, config: Any = CONFIG, given: Any = (), **options: Any) -> Any:
        job["env_vars"] = dict(given)
        ActorClass(name)._remote((), {}, **options)
        return made[-1]

    return make


def inside(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    """Makes this process that actor's."""
    for name, value in options["runtime_env"]["env_vars"].items():
        monkeypatch.setenv(name, value)


def test_the_actor_that_is_to_train_gets_what_the_job_lacks(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's program started Ray by itself."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    given = make("TaskRunnerV1", given={"OTEL_SERVICE_NAME": "theirs"})["runtime_env"]["env_vars"]
    assert given["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://c:4318"
    assert "OTEL_SERVICE_NAME" not in given  # it inherits theirs
    assert not handed_on.names_run(given)
    assert handed_on.forwarded(given) == {SERVICE: "theirs"}


def test_what_the_trainers_process_makes_is_of_its_run(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"{RUN_ID}=mine,team=red")
    inside(monkeypatch, make("TaskRunner"))
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=of-trainer")
    worker = make("WorkerDict", runtime_env={"env_vars": {"RANK": "0"}, "nsight": "x"})["runtime_env"]
    assert worker["nsight"] == "x"
    assert worker["env_vars"].keys() == {"RANK", handed_on.RUN_VARIABLE, "TRACEPARENT"}  # the rest is inherited
    assert handed_on.names_run(worker["env_vars"])
    told = handed_on.forwarded(worker["env_vars"])
    assert (told[RUN_ID], told[ATTEMPT], told["team"]) == ("mine", "1", "red")
    assert told[names.ATTR_RUN_METHOD.name] == "GRPO"
    assert "k8s.pod.name" not in told
    another = make("AgentLoopWorker", config=None)["runtime_env"]["env_vars"]
    assert another.keys() == {handed_on.RUN_VARIABLE, "TRACEPARENT"}
    assert another["TRACEPARENT"] == worker["env_vars"]["TRACEPARENT"] == run.job_span()["TRACEPARENT"]


def test_what_a_worker_makes_inherits_all_of_it(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inside(monkeypatch, make("TaskRunner"))
    inside(monkeypatch, make("WorkerDict"))
    run.end()  # another process
    assert make("Server") == {}


def test_each_training_of_a_driver_is_an_attempt_of_the_run_that_the_user_names(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"{RUN_ID}=mine")
    launched = [handed_on.forwarded(make("TaskRunner")["runtime_env"]["env_vars"]) for _ in range(3)]
    assert [attributes.get(ATTEMPT) for attributes in launched] == [None, "2", "3"]
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"{RUN_ID}=yours,{ATTEMPT}=4")
    launched = [handed_on.forwarded(make("TaskRunner")["runtime_env"]["env_vars"]) for _ in range(2)]
    assert [attributes[ATTEMPT] for attributes in launched] == ["4", "5"]
    monkeypatch.delenv("OTEL_RESOURCE_ATTRIBUTES")
    launched = [handed_on.forwarded(make("TaskRunner")["runtime_env"]["env_vars"]) for _ in range(2)]
    assert not any(ATTEMPT in attributes for attributes in launched)  # each gets an ID of its own


def test_whatever_verls_launcher_makes_is_to_train(make: Any) -> None:
    def run_ppo() -> Any:
        return make("RecipesOwnRunner")

    assert not handed_on.names_run(run_ppo()["runtime_env"]["env_vars"])
    assert handed_on.names_run(make("RecipesOwnRunner")["runtime_env"]["env_vars"])


def test_a_launcher_that_trains_by_itself_makes_workers_of_its_run(make: Any) -> None:
    """A user's own `run_ppo`, without a TaskRunner."""
    verls_trainer: dict[str, Any] = {"__name__": "verl.trainer.ppo.ray_trainer", "make": make}
    exec("def init_workers():\n    return [make('WorkerDict') for _ in range(2)]", verls_trainer)

    def run_ppo() -> Any:
        return verls_trainer["init_workers"]()

    for worker in run_ppo():
        assert handed_on.names_run(worker["runtime_env"]["env_vars"])


def test_a_driver_that_trains_by_itself_hands_on_everything(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """sft_trainer_ray, in a Ray that the user's program started."""
    monkeypatch.setenv("AKKA_OTEL_DIR", "/shared")
    given = make("TrainingWorker")["runtime_env"]["env_vars"]
    assert given["AKKA_OTEL_DIR"] == "/shared"
    assert handed_on.forwarded(given)[RUN_ID] == run.identity(CONFIG, {}).run_id


@pytest.mark.parametrize("config", [None, {}, {"trainer": {"logger": ["console"]}}, object()])
def test_actors_of_others_are_left_alone(make: Any, config: Any) -> None:
    assert make("TaskRunner", config=config, num_cpus=1) == {"num_cpus": 1}
    assert not run.is_known()


def test_an_actor_is_made_whatever_fails(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_is_launch", lambda _: 1 / 0)
    assert make("TaskRunner", num_cpus=1) == {"num_cpus": 1}


def test_a_training_that_is_switched_off_knows_that(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKKA_OTEL_DISABLE", "1")
    assert make("TaskRunner")["runtime_env"]["env_vars"] == {"AKKA_OTEL_DISABLE": "1"}
