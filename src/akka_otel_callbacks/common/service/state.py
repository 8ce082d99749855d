"""A service's state at one moment, as it reads it from where it keeps it, such as a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from akka_otel_callbacks.common.service.checks import counted, each, known, named, truth
from akka_otel_callbacks.common.vocabulary import names

ANY = "any"
"""The accelerator of a deployment that states one capacity for all of its devices."""


class PoolKey(NamedTuple):
    """What tells one pool from another."""

    accelerator: str
    serving: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A GPU pool.

    Attributes:
        declared: devices that the deployment declares for it. Work is admitted against this figure.
        observed: devices that its cluster held at the latest reading. None until the cluster has been read.
        accelerator: the device profile that it states its capacity for, such as `nvidia-l4`, or `any`.
        serving: whether it is the pool that serving endpoints draw from.

    Raises:
        ValueError: a figure is no count, or a name is empty.
    """

    declared: int
    observed: int | None = None
    accelerator: str = ANY
    serving: bool = False

    def __post_init__(self) -> None:
        counted("declared", self.declared)
        if self.observed is not None:
            counted("observed", self.observed)
        named("accelerator", self.accelerator)
        truth("serving", self.serving)

    @property
    def key(self) -> PoolKey:
        return PoolKey(self.accelerator, self.serving)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An active claim on the devices of a pool.

    Attributes:
        devices: how many it holds or waits for.
        state: `ClaimState.GRANTED` or `ClaimState.QUEUED`.
        project: whose it is. None for a claim of no training project.
        accelerator: the pool's.
        serving: the pool's.

    Raises:
        ValueError: the state is unknown, `devices` is no count, or a name is empty.
    """

    devices: int
    state: str
    project: str | None = None
    accelerator: str = ANY
    serving: bool = False

    def __post_init__(self) -> None:
        counted("devices", self.devices)
        known(names.ATTR_CLAIM_STATE, self.state)
        if self.project is not None:
            named("project", self.project)
        named("accelerator", self.accelerator)
        truth("serving", self.serving)

    @property
    def pool(self) -> PoolKey:
        return PoolKey(self.accelerator, self.serving)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """Everything that the gauges show. What a service does not have or does not know is left out, and is absent.

    Attributes:
        pools: the GPU pools.
        claims: every active claim, of all pools.
        quotas: devices that each project may hold at once across all pools, by project.
        runs: how many runs each project has in each phase, by project and phase, as `SELECT project, phase, count(*)`
            gives it. Runs that have ended are not active and are left out here.
        pipelines: how many pipelines each project has active, by project.

    Raises:
        ValueError: something is of another type, a phase is unknown, a figure is no count, or a name is empty.
    """

    pools: Sequence[Pool] = ()
    claims: Sequence[Claim] = ()
    quotas: Mapping[str, int] = field(default_factory=dict)
    runs: Mapping[tuple[str, str], int] = field(default_factory=dict)
    pipelines: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        each("pools", Pool, self.pools)
        each("claims", Claim, self.claims)
        each("runs", tuple, self.runs)
        for figures, what in ((self.quotas, "the quota"), (self.pipelines, "the count of pipelines")):
            for project, figure in figures.items():
                counted(f"{what} of {named('project', project)}", figure)
        for (project, phase), figure in self.runs.items():
            counted(f"the count of runs of {named('project', project)}", figure)
            known(names.ATTR_RUN_PHASE, phase)
