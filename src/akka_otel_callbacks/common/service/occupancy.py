"""The gauges of a state: who holds the pools, and what is active.

Every instance of a service computes them from the same state, so they are to be aggregated with `max`. A pool or a
project that had claims reads 0 from then on, so that an idle one does not disappear from a dashboard. The same holds
for a phase that had runs and for a project that had pipelines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from akka_otel_callbacks.common.service.phases import ENDS
from akka_otel_callbacks.common.service.state import Claim, Pool, PoolKey, ServiceState
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Point

METRICS = (
    names.POOL_CLAIMS,
    names.POOL_DEVICES_CLAIMED,
    names.POOL_DEVICES_DECLARED,
    names.POOL_DEVICES_OBSERVED,
    names.PROJECT_DEVICES_CLAIMED,
    names.PROJECT_DEVICES_QUOTA,
    names.RUN_ACTIVE,
    names.PIPELINE_ACTIVE,
)
CLAIM_STATES = names.ATTR_CLAIM_STATE.values
ACCELERATOR, SERVING = names.ATTR_POOL_ACCELERATOR.name, names.ATTR_POOL_SERVING.name
STATE, PROJECT, PHASE = names.ATTR_CLAIM_STATE.name, names.ATTR_PROJECT.name, names.ATTR_RUN_PHASE.name

Points = Sequence[Point]
Key = TypeVar("Key")


class Occupancy:
    """Turns each state into points, and remembers what earlier ones had.

    Args:
        instance: the instance of the service, on every gauge of pools and of projects' devices.
    """

    def __init__(self, instance: str) -> None:
        self._instance = {names.ATTR_INSTANCE.name: instance}
        self._pools, self._claimants = _Seen[PoolKey](), _Seen[str]()
        self._phases, self._pipelines = _Seen[tuple[str, str]](), _Seen[str]()

    def figures(self, state: ServiceState) -> Mapping[Metric, Points]:
        """The points of each of `METRICS`."""
        return {
            **self._of_claims(state.claims),
            names.POOL_DEVICES_DECLARED: [(pool.declared, self._on(pool.key)) for pool in state.pools],
            names.POOL_DEVICES_OBSERVED: self._observed(state.pools),
            names.PROJECT_DEVICES_QUOTA: [
                (quota, {PROJECT: project, **self._instance}) for project, quota in state.quotas.items()
            ],
            names.RUN_ACTIVE: self._runs(state.runs),
            names.PIPELINE_ACTIVE: [
                (state.pipelines.get(project, 0), {PROJECT: project})
                for project in self._pipelines.with_those_of(state.pipelines)
            ],
        }

    def _of_claims(self, claims: Sequence[Claim]) -> dict[Metric, Points]:
        number, devices, of_project = Counter[Any](), Counter[Any](), Counter[Any]()
        for claim in claims:
            number[claim.pool, claim.state] += 1
            devices[claim.pool, claim.state] += claim.devices
            of_project[claim.project, claim.state] += claim.devices
        pools = self._pools.with_those_of(claim.pool for claim in claims)
        claimants = self._claimants.with_those_of(claim.project for claim in claims if claim.project is not None)
        by_pool = [(pool, state) for pool in pools for state in CLAIM_STATES]
        return {
            names.POOL_CLAIMS: [(number[key], {STATE: key[1], **self._on(key[0])}) for key in by_pool],
            names.POOL_DEVICES_CLAIMED: [(devices[key], {STATE: key[1], **self._on(key[0])}) for key in by_pool],
            names.PROJECT_DEVICES_CLAIMED: [
                (of_project[project, state], {PROJECT: project, STATE: state, **self._instance})
                for project in claimants
                for state in CLAIM_STATES
            ],
        }

    def _observed(self, pools: Sequence[Pool]) -> Points:
        """No point for a pool whose cluster has not been read: nobody knows what it holds."""
        return [(pool.observed, self._on(pool.key)) for pool in pools if pool.observed is not None]

    def _runs(self, runs: Mapping[tuple[str, str], int]) -> Points:
        seen = self._phases.with_those_of(key for key in runs if key[1] not in ENDS)
        return [(runs.get(key, 0), {PROJECT: key[0], PHASE: key[1]}) for key in seen]

    def _on(self, pool: PoolKey) -> dict[str, Any]:
        return {ACCELERATOR: pool.accelerator, SERVING: pool.serving, **self._instance}


class _Seen(Generic[Key]):
    """What was there once, in the order in which it came. Several exporters may collect at the same time: a dictionary
    takes in others' keys, and is copied, in one operation each."""

    def __init__(self) -> None:
        self._keys: dict[Key, None] = {}

    def with_those_of(self, keys: Iterable[Key]) -> list[Key]:
        """All keys so far, these included."""
        self._keys.update(dict.fromkeys(keys))
        return [*self._keys]
