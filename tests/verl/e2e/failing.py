"""Makes an actor of a fully_async job fail, where `FAILING` says which.

verl loads it with `VERL_USE_EXTERNAL_MODULES`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.patching.imports import after_import

FAILING = "AKKA_OTEL_TEST_FAILING"
UPDATES = 3
"""How many the trainer makes before it fails."""
ACTORS = "verl.experimental.fully_async_policy"


class InjectedError(Exception):
    pass


def _fail(*args: Any) -> None:
    raise InjectedError("the data")


def _trainer(module: ModuleType) -> None:
    kind = module.FullyAsyncTrainer.__ray_metadata__.modified_class
    update = kind._fit_update_actor

    def failing(self: Any, batch: Any) -> Any:
        self.updates_left = getattr(self, "updates_left", UPDATES) - 1
        return update(self, batch) if self.updates_left >= 0 else _fail()

    kind._fit_update_actor = failing


def _rollouter(module: ModuleType) -> None:
    module.FullyAsyncRollouter.__ray_metadata__.modified_class.set_max_required_samples = _fail


HOOKS: dict[str, tuple[str, Callable[[ModuleType], None]]] = {
    "trainer": (f"{ACTORS}.fully_async_trainer", _trainer),
    "rollouter": (f"{ACTORS}.fully_async_rollouter", _rollouter),
}
if FAILING in os.environ:
    after_import(dict([HOOKS[os.environ[FAILING]]]))
