"""A page that renews itself while a run trains."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from akka_otel_callbacks.report.live import OVER, LivePage, served
from tests.cli.test_watch import Training
from tests.report.browser import chromium, opened
from tests.report.recordings import history, recording, rl_step


@pytest.fixture
def live() -> Iterator[tuple[LivePage, str]]:
    page = LivePage()
    with served(page) as address:
        yield page, address


def test_what_is_new_appears_and_the_zoom_stays(tmp_path: Path, live: tuple[LivePage, str]) -> None:
    page_of, address = live
    with recording(tmp_path) as made, chromium() as browser, opened(browser, address) as page:
        assert page.locator("h1").inner_text() == "Waiting for the first figures of a run"
        for number in range(1, 11):
            made.step(rl_step(number, 20))
        made.export()
        page_of.show([history(tmp_path)])
        page.wait_for_function("page.runs.length === 1 && Math.floor(page.runs[0].ends[1]) === 10")
        page.evaluate("zoom(3, 7)")
        page.locator("#reward .legend button").first.click()
        page.evaluate("window.kept = document.getElementById('reward')")
        for number in range(11, 21):
            made.step(rl_step(number, 20, loss=float("nan")))
        made.export()
        page_of.show([history(tmp_path)], over=True)
        page.wait_for_function("Math.floor(page.runs[0].ends[1]) === 20")
        assert "Not finite" in page.locator("#found").inner_text()
        assert page.evaluate("[axis.from, axis.to]") == [3, 7]
        shown = page.evaluate("views.get('reward.0').drawing.getOption().dataZoom[0]")
        assert (shown["startValue"], shown["endValue"]) == (3, 7)
        assert page.evaluate("kept === document.getElementById('reward')"), "the panel is the same one"
        assert page.locator("#reward .legend button[aria-pressed=false]").count() == 1
        assert page.locator("#live").inner_text() == "The run is over."
        assert page_of.all_told.wait(60)


def test_what_has_not_changed_is_not_sent_again(tmp_path: Path, live: tuple[LivePage, str]) -> None:
    page_of, address = live
    with recording(tmp_path) as made:
        made.step(rl_step(1, 1))
        made.export()
    page_of.show([history(tmp_path)])
    first = requests.get(f"{address}page.json", timeout=10)
    assert first.json()["runs"][0]["name"] == "run-1"
    version = first.json()["version"]
    assert requests.get(f"{address}page.json?{version}", timeout=10).status_code == 204
    page_of.show([history(tmp_path)], over=True)
    assert not page_of.all_told.is_set()
    assert requests.get(f"{address}page.json?{version}", timeout=10).json()["version"] == OVER
    assert page_of.all_told.wait(60)
    assert requests.get(f"{address}page.json?{OVER}", timeout=10).status_code == 204


def test_the_end_is_told_when_a_reader_has_all_of_it(
    live: tuple[LivePage, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ends then: a page that is on its way would be cut off."""
    page_of, address = live
    text = "x" * 30_000_000  # more than the system keeps for a reader that does not read
    monkeypatch.setattr(
        "akka_otel_callbacks.report.live.page", lambda runs, now, version: {"version": version, "": text}
    )
    page_of.show([], over=True)
    with requests.get(f"{address}page.json", stream=True, timeout=60) as answer:
        assert not page_of.all_told.wait(0.2)
        assert answer.json()["version"] == OVER
    assert page_of.all_told.wait(60)


@pytest.mark.parametrize("path", ["metrics.jsonl", "../x", "page.json/", "page.html"])
def test_nothing_else_is_served(live: tuple[LivePage, str], path: str) -> None:
    assert requests.get(live[1] + path, timeout=10).status_code == 404


def test_a_site_whose_name_leads_here_gets_nothing(live: tuple[LivePage, str]) -> None:
    assert requests.get(live[1], headers={"Host": "evil.example:80"}, timeout=10).status_code == 404
    for version in ("", "x", "1" * 100, "--1", "²"):
        assert requests.get(f"{live[1]}page.json?{version}", timeout=10).status_code in (200, 204)


def test_the_command_serves_a_run_until_its_end_was_seen(tmp_path: Path) -> None:
    training = Training(tmp_path / "akka-otel" / "watched")
    command = [sys.executable, "-m", "akka_otel_callbacks", "watch", "--web"]  # which waits for the folder
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "AKKA_OTEL_DIR": "akka-otel"}
    watching = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environ)
    try:
        training.step()
        (address,) = re.findall(r"http://127\.0\.0\.1:\d+/", watching.stdout.readline())
        made = requests.get(f"{address}page.json", timeout=30).json()
        training.end()
        while made["version"] != OVER:
            answer = requests.get(f"{address}page.json?{made['version']}", timeout=30)
            made = answer.json() if answer.status_code == 200 else made
        assert made["runs"][0]["facts"][0]["value"] == "finished"
        assert watching.wait(30) == 0
    finally:
        for process in (training.process, watching):
            process.kill()
            process.wait()
