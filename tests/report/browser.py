"""A real Chromium that opens a page, and what it finds there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.programs import program

LAPTOP, PHONE = (1440, 900), (390, 844)
TEXTS = """() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, holder = node.parentElement;
    if (!node.data.trim() || ['SCRIPT', 'STYLE'].includes(holder.tagName)) continue;
    if (holder.closest('details:not([open]) :not(summary)') || !holder.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      if (box.width > 1 && box.height > 1) {
        found.push({ text: node.data.trim(), left: box.left, right: box.right, top: box.top, bottom: box.bottom });
      }
    }
  }
  return found;
}"""
"""The boxes of all texts, those in the charts too."""
SLACK = 2.5
"""Pixels that boxes may share: they are as high as the line, which is more than its letters are."""


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, address: str, size: tuple[int, int] = LAPTOP, theme: Any = "light") -> Iterator[Page]:
    """The page at an address. It must say nothing on the console and ask for nothing else."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    yield page
    context.close()
    assert said == []
    assert [url for url in asked if not url.startswith((address.partition("#")[0], "data:"))] == []


def address(file: Path) -> str:
    return file.absolute().as_uri()


def overlaps(page: Page) -> list[tuple[str, str]]:
    """Texts that lie upon each other. What scrolls sideways is cut off and lies upon nothing."""
    page.evaluate("document.getElementById('places').style.position = 'static'")  # it covers the page by intent
    boxes = page.evaluate(TEXTS)
    return [(one["text"], other["text"]) for one, other in combinations(boxes, 2) if _share(one, other)]


def wider_than_the_window(page: Page) -> int:
    """By how many pixels the page must be scrolled sideways."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def faults_of_access(page: Page) -> list[str]:
    """What axe-core calls serious or critical."""
    found = Axe().run(page).response["violations"]
    return [
        f"{fault['id']}: {node['html'][:200]}"
        for fault in found
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]


def panels(page: Page) -> dict[str, str]:
    """By the name of a panel what it has: `drawn` charts, or the reason why it has none; empty for neither."""
    return dict(
        page.evaluate("""() => page.panels.map(panel => {
          const there = document.getElementById(panel.name);
          const charts = [...there.querySelectorAll('.chart')];
          const drawn = charts.length && charts.every(chart => chart.querySelectorAll('svg path').length > 4);
          const reason = /bsent, because (.+)\\./.exec(there.textContent);
          return [panel.name, drawn ? 'drawn' : reason ? reason[1] : ''];
        })""")
    )


def assert_can_be_read(page: Page) -> None:
    """On a laptop and on a phone: every panel has figures or says why not, and no text lies upon another."""
    for width, height in (LAPTOP, PHONE):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function("[...views.values()].every(one => one.drawing.getWidth() <= innerWidth)")
        assert all(panels(page).values()), "a panel has neither figures nor a reason"
        assert overlaps(page) == []
        assert wider_than_the_window(page) == 0


def _share(one: dict[str, Any], other: dict[str, Any]) -> bool:
    wide = min(one["right"], other["right"]) - max(one["left"], other["left"])
    high = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
    return wide > SLACK and high > SLACK
