"""The providers that a user hands to the callback, and the resource that such a provider needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.gpu.health import GpuHealth
from akka_otel_callbacks.common.run.attributes import is_run_id
from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute
from akka_otel_callbacks.trl.kinds import kind_of
from akka_otel_callbacks.trl.settings import engine_attributes

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import TracerProvider
    from transformers import Trainer


def run_resource(
    trainer: Trainer | None = None,
    *,
    run_id: str | None = None,
    attempt: int | None = None,
    project: str | None = None,
    resource: Mapping[str, Any] | None = None,
) -> Resource:
    """The resource of a run, for a provider that is handed to `AkkaTelemetryCallback`. The callback takes the run's ID
    from it.

    Args:
        trainer: its configuration adds what it says of the run.
        run_id: the same as for `AkkaTelemetryCallback`, like all that follow.
    """
    engine: dict[Attribute, Any] = {names.ATTR_RUN_ENGINE: names.RunEngine.TRL}
    if trainer is not None:
        engine = engine_attributes(trainer, trainer.args, kind_of(trainer))
    return identify(os.environ, engine=engine, arguments=said(run_id, attempt, project, resource)).resource()


def said(
    run_id: str | None, attempt: int | None, project: str | None, resource: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The attributes that the user gives in code, by full name."""
    given = {names.ATTR_RUN_ID.name: run_id, names.ATTR_RUN_ATTEMPT.name: attempt, names.ATTR_PROJECT.name: project}
    return {**(resource or {}), **{name: value for name, value in given.items() if value is not None}}


class Handed:
    """What cannot leave this process. A copy of the callback shares it. A callback that is pickled leaves it behind."""

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        gpus: GpuHealth | None = None,
        *,
        left_behind: bool = False,
    ) -> None:
        self.meter_provider, self.tracer_provider, self.gpus = meter_provider, tracer_provider, gpus
        self._left_behind = left_behind

    def run_id(self) -> str | None:
        """The run's ID in the providers' resources. None if they name none."""
        ids = (_attributes(given).get(names.ATTR_RUN_ID.name) for given in (self.meter_provider, self.tracer_provider))
        return next((str(found) for found in ids if is_run_id(found)), None)

    def warnings(self, said: Mapping[str, Any]) -> list[str]:
        """What a user may expect and will not get."""
        found = []
        if self._left_behind:
            found.append(
                "providers cannot be taken into another process: this copy of the callback exports as the environment "
                "says. Hand them in where the training runs"
            )
        providers = [given for given in (self.meter_provider, self.tracer_provider) if given is not None]
        missing = {name for given in providers for name in said if _attributes(given).get(name) != said[name]}
        if missing:
            found.append(
                f"{', '.join(sorted(missing))}: the provider that was handed in has a resource of its own, which does "
                "not say so. Make it with resource=akka_otel_callbacks.trl.run_resource(…)"
            )
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Handed:
        return self

    def __reduce__(self) -> tuple[Callable[[bool], Handed], tuple[bool]]:
        provided = self.meter_provider is not None or self.tracer_provider is not None
        return _left_behind, (provided or self._left_behind,)


def _left_behind(provided: bool) -> Handed:
    return Handed(left_behind=provided)


def _attributes(provider: Any) -> Mapping[str, Any]:
    """The attributes of the provider's resource. Empty if it shows none, as with the API's own providers."""
    resource = getattr(provider, "resource", None) or getattr(getattr(provider, "_sdk_config", None), "resource", None)
    found = getattr(resource, "attributes", None)
    return found if isinstance(found, Mapping) else {}
