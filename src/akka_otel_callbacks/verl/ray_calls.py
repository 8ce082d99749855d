"""Hears of the calls of Ray by which a driver of verl starts a job and its actors.

Every process of verl has these hooks, and few make such a call. `environment`, which answers it, is loaded then.
"""

from __future__ import annotations

from types import ModuleType

from akka_otel_callbacks.common.patching.calls import Call, after, before


def install(ray: ModuleType) -> None:
    before(ray, "init", _forward, copies=False)  # a copy's job is noticed when verl makes its first actor


def install_actors(ray_actor: ModuleType) -> None:
    before(ray_actor.ActorClass, "_remote", _hand_on)
    after(ray_actor.ActorClass, "_remote", _remember)


def _forward(init: Call) -> None:
    from akka_otel_callbacks.verl import environment

    environment.forward(init)


def _hand_on(make: Call) -> None:
    from akka_otel_callbacks.verl import environment

    environment.hand_on(make)


def _remember(make: Call) -> None:
    from akka_otel_callbacks.verl import remote_trainer

    remote_trainer.remember(make)
