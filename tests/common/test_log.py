"""The package's lines: seen by a person who configured nothing, and left alone where logging is configured."""

from __future__ import annotations

import subprocess
import sys

from akka_otel_callbacks.common.vocabulary import names

SCRIPT = """
import logging
{configure}
from akka_otel_callbacks.common.log import logger, show_to_people
show_to_people()
show_to_people()
logger.info("figures go to a file")
{after}
logger.warning("careful")
logging.getLogger("other").info("not ours to show")
"""


def printed(configure: str = "", after: str = "") -> str:
    script = SCRIPT.format(configure=configure, after=after)
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stderr


def test_without_any_configuration_every_line_is_seen_once() -> None:
    assert printed() == "akka-otel: figures go to a file\nakka-otel: careful\n"


def test_a_program_that_configures_logging_later_sees_no_line_twice() -> None:
    assert printed(after="logging.basicConfig()") == "akka-otel: figures go to a file\nakka-otel: careful\n"


def test_a_configured_program_keeps_its_own_way() -> None:
    configured = "logging.basicConfig(format='own %(name)s %(message)s', level=logging.WARNING)"
    assert printed(configured) == "own akka_otel_callbacks careful\n"


def ended(script: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return done.stdout, done.stderr


def test_a_warning_that_comes_before_the_telemetry_has_our_name_too() -> None:
    script = (
        "from akka_otel_callbacks.common.run.identity import identify\n"
        "identify({'TORCHELASTIC_RESTART_COUNT': '0', 'OTEL_RESOURCE_ATTRIBUTES': '{name}=second'}, engine={})"
    )
    _, stderr = ended(script.replace("{name}", names.ATTR_RUN_ATTEMPT.name))
    (line,) = stderr.splitlines()
    assert line.startswith("akka-otel: ")
    assert "second" in line


REPLACED = """
import contextlib, io, sys
from akka_otel_callbacks.common.log import logger, show_to_people
first = io.StringIO()
with contextlib.redirect_stderr(first):
    show_to_people()
    logger.warning("one")
kept = first.getvalue()
first.close()
logger.warning("two")
for stream in (first, None, open("/dev/full", "w", buffering=1), object()):
    with contextlib.redirect_stderr(stream):
        logger.warning("nobody can read this")
logger.warning("bad %d", "format")
logger.warning("three")
print(kept, end="")
"""


def test_a_stream_that_was_closed_or_replaced_is_no_error() -> None:
    stdout, stderr = ended(REPLACED)
    assert stdout == "akka-otel: one\n"
    # Python 3.13 itself tells of a full stream, with our line in its buffer, when the program lets go of it.
    assert [line for line in stderr.splitlines() if line.startswith("akka-otel")] == [
        "akka-otel: two",
        "akka-otel: three",
    ]
    assert "Logging error" not in stderr
