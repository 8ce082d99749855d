"""The page in a real browser: of runs with a fault each, of very short and of very long ones."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.reading import runs as runs_in
from akka_otel_callbacks.report.html import written
from akka_otel_callbacks.report.page import page as page_of
from tests.replay.replayed import FIXTURES, command
from tests.report.browser import (
    PHONE,
    address,
    assert_can_be_read,
    chromium,
    faults_of_access,
    opened,
    overlaps,
    wider_than_the_window,
)
from tests.report.faults import FAULTS
from tests.report.recordings import history, record, recording, rl_step, sft_step
from tests.trl.runs import environment

REPLAYED = ("grpo_early_names.trainer_state.json.gz", "verl_oldest_console.log")
"""Published logs of past runs."""
MOST_BYTES, MOST_OF_DATA = 1_500_000, 400_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def write(file: Path, *folders: Path) -> Path:
    file.write_text(written(page_of([*map(history, folders)], time.time_ns())), encoding="utf-8")
    return file


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., str]:
    """Writes the page of some folders, and returns its address."""
    return lambda *folders: address(write(tmp_path / "page.html", *folders))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_stands_above_everything_and_leads_to_its_panel(
    browser: Browser, made: Callable[..., str], tmp_path: Path, fault: str
) -> None:
    with opened(browser, made(FAULTS[fault](tmp_path)), theme="dark") as page:
        (finding,) = page.locator(".finding").all()
        assert finding.locator("a").inner_text() == fault
        target = finding.locator("a").get_attribute("href")
        finding.locator("a").click()
        assert page.locator(target).get_attribute("class").startswith("panel")
        assert_can_be_read(page)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of all kinds by name: three real trainings, published logs of two more, and two that are as long and as
    short as can be."""
    from akka_otel_callbacks.demo.trainings import TRAININGS
    from akka_otel_callbacks.trl import AkkaTelemetryCallback

    folders = {name: tmp_path_factory.mktemp(name) for name in (*TRAININGS, *REPLAYED, "long", "short")}
    for name, train in TRAININGS.items():
        with environment({"AKKA_OTEL_DIR": str(folders[name])}):
            train(6, tmp_path_factory.mktemp("work"), [AkkaTelemetryCallback()]).train()
    for name in REPLAYED:
        assert command(FIXTURES / name, environ={"AKKA_OTEL_DIR": str(folders[name])}).exit_code == 0
    record(folders["long"], 10_000, every=100)
    record(folders["short"], 2, sft_step)
    shutil.copytree(Path(__file__).with_name("verl_run"), tmp_path_factory.getbasetemp() / "verl")
    folders["verl"] = tmp_path_factory.getbasetemp() / "verl"
    for folder in folders.values():
        write(folder / "page.html", *(runs_in(folder) or [folder]))
    return folders


@pytest.mark.parametrize("name", ["trl-grpo", "trl-sft", "verl", "long", "short", *REPLAYED])
def test_a_page_is_whole_and_can_be_read(browser: Browser, runs: dict[str, Path], name: str) -> None:
    with opened(browser, address(runs[name] / "page.html")) as page:
        assert page.locator(".finding.good").count() == 1, "it is healthy"
        assert faults_of_access(page) == []
        assert_can_be_read(page)
        assert faults_of_access(page) == [], "on a phone"


def test_a_run_without_a_step_is_not_called_healthy(browser: Browser, made: Callable[..., str], tmp_path: Path) -> None:
    with recording(tmp_path) as begun:
        begun.observed = {names.JOB_STEPS_PLANNED: [(60, {})]}
        begun.export()
    with opened(browser, made(tmp_path)) as page:
        assert page.locator(".finding").inner_text() == "No step is complete that a rule could be applied to."
        assert_can_be_read(page)


def test_a_long_run_makes_no_large_file(runs: dict[str, Path]) -> None:
    text = (runs["long"] / "page.html").read_text(encoding="utf-8")
    data = text.partition('id="data">')[2].partition("</script>")[0]
    assert len(text.encode()) <= MOST_BYTES
    assert len(data.encode()) <= MOST_OF_DATA


def test_the_cursor_and_the_zoom_are_the_same_in_all_charts(
    browser: Browser, made: Callable[..., str], tmp_path: Path
) -> None:
    with opened(browser, made(record(tmp_path))) as page:
        chart = page.locator("#reward .chart")
        box = chart.bounding_box()
        legend = page.locator("#entropy .legend").first
        at_the_end = legend.inner_text()
        chart.hover(position={"x": 60, "y": 100})
        page.wait_for_function("document.getElementById('at').textContent === 'step 1'")
        assert "entropy 0.8933" in legend.inner_text() != at_the_end
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
        page.mouse.up()
        shown = page.evaluate("[...views.values()].map(view => view.drawing.getOption().dataZoom[0].endValue)")
        assert len({*map(round, shown)}) == 1
        assert 20 < shown[0] < 40
        page.get_by_role("button", name="Show the whole run").click()
        assert page.evaluate("axis.from") is None
        assert page.evaluate("[60, 60.5].map(tick)") == ["60", ""], "behind the last step there is none"
        page.get_by_role("button", name="Time").click()
        page.locator("#reward .chart").hover(position={"x": 60, "y": 100})
        page.wait_for_function("document.getElementById('at').textContent === '0:00:00'")
        page.locator("#reward .chart").press("ArrowRight")
        page.get_by_role("button", name="Steps").press("Enter")
        page.wait_for_function("document.getElementById('at').textContent === ''")


def test_a_page_can_be_printed(browser: Browser, made: Callable[..., str], tmp_path: Path) -> None:
    """In A4's width, and in dark ink whatever the theme."""
    with opened(browser, made(record(tmp_path)), theme="dark") as page:
        page.evaluate("addEventListener('beforeprint', () => { window.worn = getComputedStyle(document.body).color })")
        assert len(page.pdf()) > 20_000
        assert page.evaluate("window.worn") == "rgb(27, 31, 36)"
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 720, "height": 1000})
        boxes = page.evaluate(
            "[...document.querySelectorAll('.chart svg')].map(one => one.getBoundingClientRect().toJSON())"
        )
        assert all(box["height"] > 90 and box["right"] < 720 for box in boxes)
        assert overlaps(page) == []


def test_two_runs_in_the_same_panels(
    browser: Browser, made: Callable[..., str], runs: dict[str, Path], tmp_path: Path
) -> None:
    with opened(browser, made(runs["trl-grpo"], record(tmp_path / "b")), PHONE, "dark") as page:
        assert page.locator("#reward .legend li").first.locator("button").count() == 2
        assert page.locator("#phases .chart").count() == page.locator("#distribution .chart").count() == 2
        assert "run-1" in page.locator("#who tr.differs", has_text="run.id").inner_text()
        assert overlaps(page) == []
        assert wider_than_the_window(page) == 0
        assert faults_of_access(page) == []


def test_nothing_in_a_file_becomes_part_of_the_page(browser: Browser, made: Callable[..., str], tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    folder = record(tmp_path, 3, figures=lambda n: {"reward_term": {evil: 0.5}}, run_id=evil)
    with opened(browser, made(folder)) as page:
        assert page.locator("h1").inner_text() == evil
        assert page.title() == evil
        assert page.locator("img").count() == 0


def test_names_of_any_script_and_length_stay_in_their_place(
    browser: Browser, made: Callable[..., str], tmp_path: Path
) -> None:
    """A name that is written from right to left does not turn around the value beside it."""
    terms = {"x" * 119: 0.25, "مكافأة الدقة": 0.75}
    with opened(browser, made(record(tmp_path, 3, figures=lambda n: {"reward_term": terms})), PHONE) as page:
        legend = page.locator("#reward .legend")
        assert legend.evaluate("list => list.scrollWidth - list.clientWidth") == 0
        button = legend.get_by_role("button", name="مكافأة الدقة")
        name, value = button.locator("bdi").bounding_box(), button.locator("b").bounding_box()
        assert name["x"] + name["width"] <= value["x"]


def test_many_gpus_are_told_in_lines_that_can_be_folded(
    browser: Browser, made: Callable[..., str], tmp_path: Path
) -> None:
    with recording(tmp_path) as begun:
        gpus = [{"hw.id": f"GPU-{number:08d}"} for number in range(40)]
        begun.observed = {
            names.JOB_PLACEMENT: [(1, gpu) for gpu in gpus],
            names.HW_TEMPERATURE: [(40.0 + at, gpu) for at, gpu in enumerate(gpus)],
        }
        for number in range(1, 4):
            begun.step(rl_step(number, 3))
            begun.export()
    with opened(browser, made(tmp_path)) as page:
        assert page.locator("#gpu .legend li").count() == 9
        fold = page.locator("#gpu details")
        page.evaluate(
            "addEventListener('beforeprint', () => { window.unfolded = document.querySelector('#gpu details').open })"
        )
        page.pdf()
        assert (page.evaluate("window.unfolded"), fold.get_attribute("open")) == (True, None), "on paper only"
        page.locator("#gpu summary").click()
        assert page.locator("#gpu .words li").count() == 40
        assert_can_be_read(page)
