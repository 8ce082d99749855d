"""The package's lines: seen by a person who configured nothing, and left alone where logging is configured."""

from __future__ import annotations

import subprocess
import sys

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
