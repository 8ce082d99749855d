"""Draws the pictures of README.md and docs/report.md: what the demo shows, and pages of real trainings with one fault
each. `make pictures` takes two minutes and needs Chromium; as trainings do, the pictures differ a little each time."""

from __future__ import annotations

import io
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console

from akka_otel_callbacks.cli.view import view
from akka_otel_callbacks.demo import tiny
from akka_otel_callbacks.demo.trainings import TRAININGS, sft
from akka_otel_callbacks.graders import GraderFailure, graded
from akka_otel_callbacks.reading import Reader, files
from akka_otel_callbacks.report import report
from akka_otel_callbacks.trl import AkkaTelemetryCallback
from tests.support.programs import program
from tests.trl.trainings import save_model

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
STEPS, LONGEST = 30, 24
WIDTH, HEIGHT = 1200, 1600
DEMO = "demo"
COLUMNS = 110
"""Of the terminal in the demo's picture: as many as its table takes."""
ONLY = """header, #places, footer, #who, #absent, #panels > :not(#PANEL), #verdict details { display: none }
body { padding: .6rem } #PANEL { grid-column: 1 / -1; margin-top: .6rem }"""
"""Leaves the verdict and one panel of a page."""

Score = Callable[..., Any]


def prompt_alone(prompts: Sequence[str], **_: Any) -> list[float]:
    """The same reward for all completions of a prompt."""
    return [len(prompt) % 10 / 10 for prompt in prompts]


def length(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
    """The longer, the better."""
    return [len(ids) / LONGEST for ids in completion_ids]


@graded(term="judge")
def judge(completion: str, prompt: str) -> float:
    """Has no answer for a third of the rollouts."""
    if len(completion) % 3 == 0:
        raise GraderFailure("timeout")
    return min(len(completion) / 40, 1.0)


def grpo(score: Score, directory: Path, **settings: Any) -> None:
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        **{
            "output_dir": str(directory),
            "max_steps": STEPS,
            "learning_rate": 1e-4,
            "per_device_train_batch_size": 32,
            "num_generations": 8,
            "max_completion_length": LONGEST,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": [],
            "use_cpu": True,
            "bf16": False,
            "disable_tqdm": True,
            **settings,
        }
    )
    trainer = GRPOTrainer(
        model=save_model(directory / "model"),
        args=config,
        reward_funcs=[score],
        train_dataset=tiny.prompts(64),
        callbacks=[AkkaTelemetryCallback()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()


def diverged(directory: Path) -> None:
    """An SFT whose weights are no numbers any more from step 20 on."""
    from transformers import TrainerCallback

    class Poison(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, model: Any, **_: Any) -> None:
            if state.global_step == 19:
                model.get_input_embeddings().weight.data.fill_(math.nan)

    sft(STEPS, directory, [AkkaTelemetryCallback(), Poison()]).train()


def starved(directory: Path) -> None:
    """An SFT whose batches are collated slowly."""
    trainer = sft(STEPS, directory, [AkkaTelemetryCallback()])
    collate = trainer.data_collator

    def slowly(rows: Any) -> Any:
        time.sleep(0.3)
        return collate(rows)

    trainer.data_collator = slowly
    trainer.train()


@dataclass(frozen=True)
class Picture:
    """What is trained, the panel that shows the fault, and the rule that finds it."""

    train: Callable[[Path], None]
    panel: str
    rule: str


PICTURES: Mapping[str, Picture] = {
    "nan": Picture(diverged, "loss", "Not finite"),
    "dead-groups": Picture(lambda directory: grpo(prompt_alone, directory), "groups", "Dead groups"),
    "length-hacking": Picture(
        lambda directory: grpo(
            length, directory, learning_rate=2e-4, per_device_train_batch_size=64, num_generations=4
        ),
        "length",
        "Truncation rising",
    ),
    "starved-input": Picture(starved, "phases", "Input-bound"),
    "failing-grader": Picture(lambda directory: grpo(judge, directory), "graders", "Grader failing"),
}
"""By the name of the image's file."""


def draw(browser: Browser, page: Path, panel: str, image: Path) -> None:
    """The verdict, and below it the panel."""
    with browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}) as context:
        opened = context.new_page()
        opened.goto(page.absolute().as_uri())
        opened.add_style_tag(content=ONLY.replace("PANEL", panel))
        opened.wait_for_timeout(300)  # until the chart has the room that is left
        opened.locator("main").screenshot(path=image)


def draw_demo(folder: Path, image: Path) -> None:
    """What `akka-otel demo` shows at its end."""
    TRAININGS["trl-grpo"](STEPS, folder.with_name("demo-training"), [AkkaTelemetryCallback()]).train()
    (run,) = Reader(files(folder)).read()
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), highlight=False, markup=False)
    console.print(view(run, COLUMNS))
    console.save_svg(str(image), title="akka-otel demo")


def main(*chosen: str) -> None:
    """Draws those of these names, or all."""
    with TemporaryDirectory() as work, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program("chromium"), args=["--no-sandbox"])
        for name in chosen or (DEMO, *PICTURES):
            folder = Path(work) / name
            os.environ["AKKA_OTEL_DIR"] = str(folder)
            if name == DEMO:
                draw_demo(folder, IMAGES / f"{DEMO}.svg")
                continue
            picture = PICTURES[name]
            picture.train(Path(work) / f"{name}-training")
            draw(browser, report(folder).save(folder / "page.html"), picture.panel, IMAGES / f"report-{name}.png")
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
