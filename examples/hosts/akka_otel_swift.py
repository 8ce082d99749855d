"""The callback in ms-swift, for `swift sft` and `swift rlhf`:

swift sft … --external_plugins akka_otel_swift.py --callbacks akka_otel
"""

from __future__ import annotations

from swift.callbacks import callbacks_map

from akka_otel_callbacks.trl import AkkaTelemetryCallback

callbacks_map["akka_otel"] = lambda args, trainer: AkkaTelemetryCallback()
