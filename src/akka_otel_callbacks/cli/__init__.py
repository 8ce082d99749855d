"""The command `akka-otel`. Each command imports what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # locals may hold headers and tokens
)


def _version(asked: bool) -> None:
    if asked:
        from akka_otel_callbacks import __version__

        typer.echo(f"akka-otel-callbacks {__version__}")
        raise typer.Exit


@app.callback()
def command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """OpenTelemetry for LLM fine-tuning jobs."""


class Engine(str, Enum):
    """The trainings that the demo can run."""

    TRL_GRPO = "trl-grpo"
    TRL_SFT = "trl-sft"
    VERL = "verl"


@app.command("demo")
def demo_command(
    engine: Annotated[Engine, typer.Option(help="Which training to run.")] = Engine.TRL_GRPO,
    steps: Annotated[int | None, typer.Option(min=1, help="How many steps.", show_default="30, of verl 3")] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Where the figures go when no exporter is configured."),
    ] = None,
) -> None:
    """Train a tiny model for half a minute, with no hub, GPU or collector, and show what was published."""
    from akka_otel_callbacks.cli.demo import demo
    from akka_otel_callbacks.cli.demo_verl import train_verl

    if engine is Engine.VERL:
        demo(engine.value, steps or 3, directory, train_verl)
    else:
        demo(engine.value, steps or 30, directory)


@app.command("show")
def show_command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Runs' folders, folders of runs, or files of OTLP/JSON lines.",
            show_default="AKKA_OTEL_DIR or akka-otel",
        ),
    ] = None,
    every_run: Annotated[
        bool, typer.Option("--all", help="Every run in the files, not the newest only, and every process.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON document.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="A row for each value.")] = False,
) -> None:
    """Show every metric of a run with its course, how the run ended, its spans and its warnings. Of several paths, show
    the runs beside each other."""
    from akka_otel_callbacks.cli.show import As, show

    if as_json and as_csv:
        raise typer.BadParameter("--json and --csv exclude each other")
    show(paths or (), every_run=every_run, form=As.JSON if as_json else As.CSV if as_csv else As.TABLES)


@app.command("watch")
def watch_command(
    path: Annotated[
        Path | None,
        typer.Argument(
            help="A run's folder or file, or a folder of runs.", show_default="the newest in AKKA_OTEL_DIR or akka-otel"
        ),
    ] = None,
    web: Annotated[bool, typer.Option("--web", help="As a page in the browser, which renews itself.")] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Of that page, on loopback.", show_default="a free one")
    ] = 0,
) -> None:
    """Watch a run until it ends. Exit code 1 where it failed or was interrupted."""
    from akka_otel_callbacks.cli.watch import watch
    from akka_otel_callbacks.cli.watch_web import watch_web

    if not (watch_web(path, port) if web else watch(path)):
        raise typer.Exit(1)


@app.command("report")
def report_command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A run's folder, a folder of runs, or a file of OTLP/JSON lines. Or several.",
            show_default="the newest run in AKKA_OTEL_DIR or akka-otel",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where the page goes.", show_default="report.html in the run's folder"),
    ] = None,
) -> None:
    """Write a page with a run's figures over time and what deserves attention: one HTML file that opens anywhere."""
    from akka_otel_callbacks.cli.report import report

    report(paths or (), output)


@app.command("replay")
def replay_command(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="A trainer_state.json, a verl log, TensorBoard's event files, or a folder with one of them."
        ),
    ],
) -> None:
    """Publish a past run from its log, to where a training started here would send its figures."""
    from akka_otel_callbacks.cli.replay import replay

    replay(paths)


@app.command("targets")
def targets_command(
    folder: Annotated[
        Path | None, typer.Argument(help="Where the runs have their files.", show_default="AKKA_OTEL_DIR, or akka-otel")
    ] = None,
) -> None:
    """List the processes that a Prometheus finds here, and remove the files of those that were killed."""
    from akka_otel_callbacks.cli.targets import targets

    targets(folder)


@app.command("doctor")
def doctor_command() -> None:
    """Say where a training started here would send its telemetry, and whether that works."""
    from akka_otel_callbacks.cli.doctor import doctor

    doctor()


def main() -> None:
    """The entry point of the console script."""
    try:
        app(prog_name="akka-otel")
    except OSError as error:  # stdout is full, or gone
        from akka_otel_callbacks.cli.output import stop

        raise SystemExit(stop(f"The output cannot be written: {error.strerror}.", code=1).exit_code) from None
