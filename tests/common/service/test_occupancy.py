"""The gauges of a service's state, held against sums made by hand and by brute force."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.service.occupancy import METRICS, Occupancy
from akka_otel_callbacks.common.service.state import Claim, Pool, ServiceState
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.names import ClaimState, RunPhase

L4: Any = {"accelerator": "nvidia-l4"}
BUSY = ServiceState(
    pools=[Pool(declared=8, observed=7, **L4), Pool(declared=4, serving=True)],
    claims=[
        Claim(project="triage", devices=2, state=ClaimState.GRANTED, **L4),
        Claim(project="triage", devices=1, state=ClaimState.GRANTED, **L4),
        Claim(project="commits", devices=4, state=ClaimState.QUEUED, **L4),
        Claim(devices=1, state=ClaimState.GRANTED, serving=True),
    ],
    quotas={"triage": 6},
    runs={("triage", RunPhase.TRAINING): 2, ("commits", RunPhase.AWAITING_DEVICES): 1, ("triage", RunPhase.FAILED): 9},
    pipelines={"triage": 1},
)
IDLE = ServiceState(pools=[Pool(declared=8, **L4)])


def values(occupancy: Occupancy, state: ServiceState, metric: Metric) -> dict[Any, Any]:
    """By the attributes' values in the registry's order, the instance left out."""
    found = {}
    for value, attributes in occupancy.figures(state)[metric]:
        assert set(attributes) == {attribute.name for attribute in metric.attributes}
        assert attributes.get(names.ATTR_INSTANCE.name, "pod-1") == "pod-1"
        key = tuple(attributes[a.name] for a in metric.attributes if a is not names.ATTR_INSTANCE)
        assert key not in found, "a series comes once"
        found[key] = value
    return found


def test_a_state_by_hand() -> None:
    occupancy = Occupancy("pod-1")
    assert values(occupancy, BUSY, names.POOL_CLAIMS) == {
        ("GRANTED", "nvidia-l4", False): 2,
        ("QUEUED", "nvidia-l4", False): 1,
        ("GRANTED", "any", True): 1,
        ("QUEUED", "any", True): 0,
    }
    assert values(occupancy, BUSY, names.POOL_DEVICES_CLAIMED) == {
        ("GRANTED", "nvidia-l4", False): 3,
        ("QUEUED", "nvidia-l4", False): 4,
        ("GRANTED", "any", True): 1,
        ("QUEUED", "any", True): 0,
    }
    assert values(occupancy, BUSY, names.POOL_DEVICES_DECLARED) == {("nvidia-l4", False): 8, ("any", True): 4}
    assert values(occupancy, BUSY, names.PROJECT_DEVICES_CLAIMED) == {
        ("triage", "GRANTED"): 3,
        ("triage", "QUEUED"): 0,
        ("commits", "GRANTED"): 0,
        ("commits", "QUEUED"): 4,
    }
    assert values(occupancy, BUSY, names.PROJECT_DEVICES_QUOTA) == {("triage",): 6}
    assert values(occupancy, BUSY, names.RUN_ACTIVE) == {("triage", "TRAINING"): 2, ("commits", "AWAITING_DEVICES"): 1}
    assert values(occupancy, BUSY, names.PIPELINE_ACTIVE) == {("triage",): 1}


def test_observed_devices_are_absent_until_the_cluster_is_read() -> None:
    occupancy = Occupancy("pod-1")
    assert values(occupancy, BUSY, names.POOL_DEVICES_OBSERVED) == {("nvidia-l4", False): 7}
    assert values(occupancy, IDLE, names.POOL_DEVICES_OBSERVED) == {}
    empty = ServiceState(pools=[Pool(declared=8, observed=0)])
    assert values(occupancy, empty, names.POOL_DEVICES_OBSERVED) == {("any", False): 0}, "a cluster may hold none"


def test_what_had_claims_reads_zero_afterwards_and_what_had_none_is_absent() -> None:
    occupancy = Occupancy("pod-1")
    assert values(occupancy, IDLE, names.POOL_CLAIMS) == {}
    assert values(occupancy, IDLE, names.PROJECT_DEVICES_CLAIMED) == {}
    occupancy.figures(BUSY)
    for metric in (names.POOL_CLAIMS, names.POOL_DEVICES_CLAIMED, names.PROJECT_DEVICES_CLAIMED, names.RUN_ACTIVE):
        before = values(Occupancy("pod-1"), BUSY, metric)
        assert values(occupancy, IDLE, metric) == dict.fromkeys(before, 0), metric.name
    assert values(occupancy, IDLE, names.PIPELINE_ACTIVE) == {("triage",): 0}
    assert values(occupancy, IDLE, names.PROJECT_DEVICES_QUOTA) == {}, "a quota that is gone is no quota of 0"


ACCELERATORS, PROJECTS = ["any", "nvidia-l4"], ["triage", "commits", None]
CLAIMS = st.builds(
    Claim,
    project=st.sampled_from(PROJECTS),
    devices=st.integers(0, 9),
    state=st.sampled_from(names.ATTR_CLAIM_STATE.values),
    accelerator=st.sampled_from(ACCELERATORS),
    serving=st.booleans(),
)


@given(st.lists(st.lists(CLAIMS, max_size=6), min_size=1, max_size=4))
def test_claims_add_up_and_no_series_is_lost(course: Sequence[Sequence[Claim]]) -> None:
    occupancy = Occupancy("pod-1")
    for count, claims in enumerate(course):
        figures = [values(occupancy, ServiceState(claims=claims), metric) for metric in METRICS[:2]]
        numbers, devices = figures
        ever = {(c.accelerator, c.serving) for earlier in course[: count + 1] for c in earlier}
        assert numbers.keys() == devices.keys() == {(s, *pool) for s in names.ATTR_CLAIM_STATE.values for pool in ever}
        for (state, accelerator, serving), number in numbers.items():
            held = [c for c in claims if (c.state, c.accelerator, c.serving) == (state, accelerator, serving)]
            assert (number, devices[state, accelerator, serving]) == (len(held), sum(c.devices for c in held))
        of_projects = values(occupancy, ServiceState(claims=claims), names.PROJECT_DEVICES_CLAIMED)
        assert {project for project, _ in of_projects} == {
            c.project for earlier in course[: count + 1] for c in earlier if c.project
        }
        for (project, state), number in of_projects.items():
            assert number == sum(c.devices for c in claims if (c.project, c.state) == (project, state))
