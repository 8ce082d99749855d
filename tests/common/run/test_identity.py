"""Who the run is: which source wins, in which type."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.run.attributes import is_attempt, is_run_id
from akka_otel_callbacks.common.run.identity import generated_run_id, identify
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute
from tests.common.scripts import reported, run

RUN_ID, ATTEMPT = names.ATTR_RUN_ID, names.ATTR_RUN_ATTEMPT


def pairs(**values: Any) -> dict[str, str]:
    """An environment whose OTEL_RESOURCE_ATTRIBUTES says these."""
    by_name = {_by_field(field).name: value for field, value in values.items()}
    return {"OTEL_RESOURCE_ATTRIBUTES": ",".join(f"{name}={value}" for name, value in by_name.items())}


def _by_field(field: str) -> Attribute:
    return getattr(names, f"ATTR_{field.upper()}")


def identity(
    environ: Mapping[str, str] | None = None, engine: Any = None, arguments: Any = None, **options: Any
) -> dict:
    return dict(identify(environ or {}, engine=engine or {}, arguments=arguments, **options).attributes)


# -- sources


@pytest.mark.parametrize(
    ("attribute", "field", "in_code", "in_environment", "in_engine"),
    [
        (names.ATTR_RUN_ID, "run_id", "code", "env", "engine"),
        (names.ATTR_RUN_ATTEMPT, "run_attempt", 7, 6, 5),
        (names.ATTR_RUN_BASE_MODEL, "run_base_model", "code/m", "env/m", "engine/m"),
        (names.ATTR_RUN_LEARNING_RATE, "run_learning_rate", 0.1, 0.2, 0.3),
        (names.ATTR_PROJECT, "project", "code", "env", "engine"),
        (names.ATTR_HOST_NAME, "host_name", "code", "env", "engine"),
        (names.ATTR_SERVICE_INSTANCE_ID, "service_instance_id", "code", "env", "engine"),
    ],
)
def test_the_first_source_wins(
    attribute: Attribute, field: str, in_code: Any, in_environment: Any, in_engine: Any
) -> None:
    environ, engine, arguments = pairs(**{field: in_environment}), {attribute: in_engine}, {attribute.name: in_code}
    assert identity(environ, engine, arguments)[attribute.name] == in_code
    assert identity(environ, engine)[attribute.name] == in_environment
    assert identity({}, engine)[attribute.name] == in_engine


def test_what_a_source_leaves_empty_is_the_next_one_s() -> None:
    environ, arguments = pairs(run_id="", project="env"), {RUN_ID.name: None, names.ATTR_PROJECT.name: ""}
    found = identity(environ, {RUN_ID: "engine"}, arguments)
    assert (found[RUN_ID.name], found[names.ATTR_PROJECT.name]) == ("engine", "env")


def test_without_any_source_the_run_has_an_id_an_attempt_and_a_place() -> None:
    found = identity({}, {names.ATTR_RUN_ENGINE: "trl"}, rank=3)
    assert re.fullmatch(r"trl-\d{8}-\d{6}-[0-9a-f]{8}", found[RUN_ID.name])
    assert found[ATTEMPT.name] == 1
    assert found[names.ATTR_SERVICE_NAME.name] == "akka-training-job"
    assert found[names.ATTR_SERVICE_INSTANCE_ID.name] == f"{found[RUN_ID.name]}.1.3"
    assert found[names.ATTR_HOST_NAME.name]
    assert found[names.ATTR_PROCESS_PID.name] > 0
    assert identity(run_id="given")[RUN_ID.name] == "given"


def test_generated_ids_differ_under_one_seed_also_in_a_job_array_that_begins_at_once() -> None:
    ids = set()
    for _ in range(1000):
        random.seed(42)
        ids.add(generated_run_id("trl"))
    assert len(ids) >= 999, "eight hex digits within one second"


@pytest.mark.parametrize(("restarts", "attempt"), [("0", 1), ("2", 3), ("x", 1), ("", 1)])
def test_a_restart_by_torchrun_is_a_new_attempt(restarts: str, attempt: int) -> None:
    assert identity({"TORCHELASTIC_RESTART_COUNT": restarts})[ATTEMPT.name] == attempt


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"OTEL_SERVICE_NAME": "mine"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=theirs"}, "theirs"),
        ({"OTEL_SERVICE_NAME": "mine", "OTEL_RESOURCE_ATTRIBUTES": "service.name=theirs"}, "mine"),
    ],
)
def test_service_name(environ: dict[str, str], expected: str) -> None:
    assert identity(environ)[names.ATTR_SERVICE_NAME.name] == expected


def test_kubernetes() -> None:
    pod, node = names.ATTR_K8S_POD_NAME.name, names.ATTR_K8S_NODE_NAME.name
    found = identity({"POD_NAME": "p", "NODE_NAME": "n", "HOSTNAME": "h"})
    assert (found[pod], found[node]) == ("p", "n")
    assert identity({"K8S_POD_NAME": "first", "POD_NAME": "second"})[pod] == "first"
    assert pod not in identity({"HOSTNAME": "not-a-pod"})


@pytest.mark.parametrize("field", ["project", "workload"])
def test_the_project_goes_by_both_of_its_names(field: str) -> None:
    found = identity(pairs(**{field: "p"}))
    assert found[names.ATTR_PROJECT.name] == found[names.ATTR_WORKLOAD.name] == "p"
    assert names.ATTR_PROJECT.name not in identity()


# -- types


def test_values_have_their_registered_type() -> None:
    environ = pairs(run_attempt="3", run_learning_rate="1e-6", run_lora_rank="16.0", run_id="42", project="a%20b%2Cc")
    found = identity(environ)
    for attribute, expected in [
        (names.ATTR_RUN_ATTEMPT, 3),
        (names.ATTR_RUN_LEARNING_RATE, 1e-6),
        (names.ATTR_RUN_LORA_RANK, 16),
        (names.ATTR_RUN_ID, "42"),
        (names.ATTR_PROJECT, "a b,c"),
    ]:
        assert (type(found[attribute.name]), found[attribute.name]) == (attribute.type, expected)


@pytest.mark.parametrize("field", ["run_attempt", "run_learning_rate", "run_lora_rank"])
@pytest.mark.parametrize("value", ["many", "nan", "inf", "1e400", "0x10", "1,5", "True"])
def test_a_malformed_value_is_one_warning_and_no_value(
    field: str, value: str, environment: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    environ = pairs(**{field: value.replace(",", "%2C")})
    environment.setenv("OTEL_RESOURCE_ATTRIBUTES", environ["OTEL_RESOURCE_ATTRIBUTES"])
    found = identify(environ, engine={})
    assert [record.levelname for record in log.records] == ["WARNING"]
    assert value in log.text
    name = _by_field(field).name
    expected = 1 if field == "run_attempt" else None
    assert found.attributes.get(name) == expected
    assert found.resource().attributes.get(name) == expected, (
        "the SDK, which reads the variable too, brings it not back"
    )


@pytest.mark.parametrize(
    "value", ["%20", "%20%20/-..", "%09", "a%0Ab", "a%00", "%C2%A0", "%E2%80%8B", "a" * 257], ids=range(8)
)
def test_an_id_that_nobody_can_see_or_type_is_none(value: str, log: pytest.LogCaptureFixture) -> None:
    found = identify(pairs(run_id=value), engine={}, run_id="generated")
    assert found.run_id == "generated"
    assert "is not an ID (at most 256 printable characters, with a letter or a digit)" in log.text
    assert len(log.text) < 400, "a long value is not repeated"


@pytest.mark.parametrize("value", ["../run", "a/b c", "42", "Versuch-ü", "実験", "a" * 256])
def test_any_other_id_is_as_a_person_says_it(value: str, log: pytest.LogCaptureFixture) -> None:
    assert identity({}, arguments={RUN_ID.name: value})[RUN_ID.name] == value
    assert not log.records


@pytest.mark.parametrize("value", [0, -1, 1_000_001, 1.5])
def test_attempts_count_from_1(value: Any, log: pytest.LogCaptureFixture) -> None:
    assert identity({}, arguments={ATTEMPT.name: value})[ATTEMPT.name] == 1
    assert "a whole number from 1 to 1000000" in log.text


def test_blanks_are_as_good_as_nothing() -> None:
    assert names.ATTR_PROJECT.name not in identity(pairs(project="%20"), {names.ATTR_RUN_NAME: " "})


def test_attributes_that_are_nobody_s_keep_their_type_and_the_sdk_s_own_are_there() -> None:
    found = identify({}, engine={}, arguments={"team": "a", "budget": 1.5, "gpus": 8, "spot": True, "big": 2**80})
    resource = found.resource().attributes
    assert (resource["team"], resource["budget"], resource["gpus"], resource["spot"]) == ("a", 1.5, 8, True)
    assert resource["big"] == str(2**80), "more than an attribute can carry"
    assert resource["telemetry.sdk.language"] == "python"
    assert (found.run_id, found.attempt) == (resource[RUN_ID.name], resource[ATTEMPT.name])


SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=2)
REGISTERED = st.sampled_from(names.RESOURCE_ATTRIBUTES)


@given(
    variable=st.text(),
    engine=st.dictionaries(REGISTERED, SCALAR),
    arguments=st.dictionaries(REGISTERED.map(lambda attribute: attribute.name) | st.text(min_size=1), SCALAR),
)
def test_whatever_is_given_the_identity_can_be_sent(variable: str, engine: dict, arguments: dict) -> None:
    from opentelemetry.exporter.otlp.proto.common._internal import _encode_attributes

    found = identify({"OTEL_RESOURCE_ATTRIBUTES": variable}, engine=engine, arguments=arguments)
    known = {attribute.name: attribute for attribute in names.RESOURCE_ATTRIBUTES}
    for name, value in found.attributes.items():
        assert type(value) in ((known[name].type,) if name in known else (str, int, float, bool))
    assert is_run_id(identify({"OTEL_RESOURCE_ATTRIBUTES": variable}, engine={}, arguments=arguments).run_id)
    assert is_attempt(found.attempt)
    sent = {pair.key for pair in _encode_attributes(found.resource().attributes)}
    assert {name for name in found.attributes if name in known} <= sent


def test_bytes_of_the_environment_that_are_no_utf8_do_not_cost_the_attribute() -> None:
    latin = b"caf\xe9".decode(errors="surrogateescape")
    found = identity(pairs(project=latin))
    assert found[names.ATTR_PROJECT.name] == "caf?"


# -- thousands of them


def test_the_shares_of_a_job_s_processes_are_spread_evenly() -> None:
    shares = sorted(identify({}, engine={}, run_id="run-7", rank=rank).share for rank in range(4000))
    assert all(0 <= share < 1 for share in shares)
    by_tenth = [sum(tenth <= 10 * share < tenth + 1 for share in shares) for tenth in range(10)]
    assert min(by_tenth) > 300


def test_an_instance_has_the_same_share_in_every_process(tmp_path: Path) -> None:
    said = "print(identify({}, engine={}, run_id='run-7', rank=3).share)"
    other = run(said, {"PYTHONHASHSEED": "77"}, tmp_path)
    assert reported(other) == identify({}, engine={}, run_id="run-7", rank=3).share
