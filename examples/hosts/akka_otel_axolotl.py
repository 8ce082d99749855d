"""The callback as an Axolotl plugin. In the configuration, with this file's folder on PYTHONPATH:

plugins:
  - akka_otel_axolotl.AkkaOtelPlugin
"""

from __future__ import annotations

from typing import Any

from axolotl.integrations.base import BasePlugin

from akka_otel_callbacks.trl import AkkaTelemetryCallback


class AkkaOtelPlugin(BasePlugin):
    def add_callbacks_pre_trainer(self, cfg: Any, model: Any) -> list[AkkaTelemetryCallback]:
        """Axolotl asks for them before it makes the trainer, so that our callback sees how it is made."""
        return [AkkaTelemetryCallback()]
