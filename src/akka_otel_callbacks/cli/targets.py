"""`akka-otel targets`: the processes that a Prometheus finds by the files in a folder."""

from __future__ import annotations

import os
from pathlib import Path

from rich.table import Table

from akka_otel_callbacks.cli.output import printable, stdout, stop
from akka_otel_callbacks.common.export.address_files import HOST, PATTERN, PID, Found, look, sweep
from akka_otel_callbacks.common.export.selection import runs_folder

ALIVE = {
    True: "",
    None: "; whether it lives cannot be told from here",
    False: "; it is gone, and the file cannot be removed",
}


def targets(folder: Path | None) -> None:
    """Prints the address, the instance and the process of each file. Exit code 2 where the folder cannot be read."""
    folder = folder or runs_folder(os.environ)
    try:
        removed, found = sweep(folder), look(folder)
    except FileNotFoundError as error:
        raise stop(f"{folder} does not exist: a process that is scraped makes it.", code=2) from error
    except OSError as error:
        raise stop(f"{folder} cannot be read: {error.strerror}.", code=2) from error
    console = stdout()
    for each in removed:
        console.print(f"{printable(each.path.name)} is removed: its process is gone.", soft_wrap=True)
    if found:
        console.print(_table(found))
    else:
        console.print(f"No process is found by {printable(str(folder / PATTERN))}.", soft_wrap=True)


def _table(found: list[Found]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for each in found:
        process = f"process {each.labels[PID]} on {each.labels[HOST]}{ALIVE[each.alive]}"
        table.add_row(*map(printable, (each.address, each.labels.get("instance", ""), process)))
    return table
