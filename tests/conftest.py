"""What holds for every test: no hub, one thread, nothing of the developer's own telemetry settings, interrupts, and no
limit on the time of an example, which a busy machine would miss."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")
for _name in [*os.environ]:
    if _name.startswith(("OTEL_", "AKKA_")) or _name in ("TRACEPARENT", "TRACESTATE"):
        del os.environ[_name]
# A shell has what it starts in the background ignore interrupts, and so does whatever that starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    from hypothesis import settings
except ImportError:  # a host's environment: its tests have no properties
    pass
else:
    settings.register_profile("any machine", settings(), deadline=None)
    settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def _leaves_the_environment_as_it_was() -> Iterator[None]:
    """A command that runs within a test may set variables for its process."""
    before = dict(os.environ)
    yield
    for name in [*os.environ]:
        if name not in before:
            del os.environ[name]
    os.environ.update(before)
