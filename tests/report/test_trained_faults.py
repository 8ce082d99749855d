"""Real trainings with one fault each, those of the pictures in docs/report.md, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from akka_otel_callbacks.report import report
from tests.report.browser import address, assert_can_be_read, chromium, opened
from tests.trl.runs import environment
from tools.pages import PICTURES


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.mark.parametrize("fault", PICTURES)
def test_the_page_of_a_training_with_a_fault_names_it(browser: Browser, tmp_path: Path, fault: str) -> None:
    with environment({"AKKA_OTEL_DIR": str(tmp_path / "run")}):
        PICTURES[fault].train(tmp_path / "training")
    file = report(tmp_path / "run").save(tmp_path / "page.html")
    with opened(browser, address(file)) as page:
        found = [line.locator("a").inner_text() for line in page.locator(".finding").all()]
        assert PICTURES[fault].rule in found
        assert_can_be_read(page)
