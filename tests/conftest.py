"""What holds for every test: no hub, one thread, and nothing of the developer's own telemetry settings."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")
for _name in [*os.environ]:
    if _name.startswith(("OTEL_", "AKKA_")) or _name in ("TRACEPARENT", "TRACESTATE"):
        del os.environ[_name]
