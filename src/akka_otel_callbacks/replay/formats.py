"""The formats of logs: how each is recognised and read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.replay import tensorboard, trainer_state, verl_console, verl_file
from akka_otel_callbacks.replay.log import Log, Unreadable


@dataclass(frozen=True, slots=True)
class Format:
    """One format of logs.

    Attributes:
        name: as the registry has it.
        what: what a person calls such a file.
        is_one: whether a file has this format, told by its content.
        read: reads all files of one log.
        patterns: how such files are found in a folder.
    """

    name: str
    what: str
    is_one: Callable[[Path], bool]
    read: Callable[[Sequence[Path]], Log]
    patterns: tuple[str, ...]

    def files_in(self, folder: Path) -> list[Path]:
        """The files of this format in a folder, without empty ones."""
        found = {file for pattern in self.patterns for file in folder.glob(pattern) if file.is_file()}
        return [file for file in sorted(found) if file.stat().st_size and self.is_one(file)]


Names = names.ReplayFormat
_ALL = (
    Format(
        Names.TENSORBOARD,
        "a TensorBoard event file",
        tensorboard.is_one,
        tensorboard.read,
        ("*tfevents*", "*/*tfevents*", "*/*/*tfevents*"),
    ),
    Format(
        Names.VERL_FILE,
        "the JSONL of verl's logger `file`",
        verl_file.is_one,
        verl_file.read,
        ("*.jsonl", "*.jsonl.gz"),
    ),
    Format(
        Names.TRAINER_STATE,
        "a trainer_state.json of transformers",
        trainer_state.is_one,
        trainer_state.read,
        ("trainer_state.json", "checkpoint-*/trainer_state.json"),
    ),
    Format(
        Names.VERL_CONSOLE,
        "the console log of a verl training",
        verl_console.is_one,
        verl_console.read,
        ("*.log", "*.out", "*.txt", "*.log.gz"),
    ),
)
FORMATS = {format.name: format for format in _ALL}
"""The formats by name, in the order in which they are tried. The last one takes any text."""
IN_A_FOLDER = (Names.TRAINER_STATE, Names.TENSORBOARD, Names.VERL_FILE, Names.VERL_CONSOLE)
"""Which one counts where a folder has several: transformers' own has more digits than an event file."""
ACCEPTED = "; ".join(format.what for format in FORMATS.values())


def of_file(path: Path) -> Format:
    """The format of a file.

    Raises:
        Unreadable: it has none of them, or cannot be read.
    """
    try:
        if path.stat().st_size == 0:
            raise Unreadable(f"{path} is empty: the run wrote nothing before it ended")
        if not path.is_file():
            raise Unreadable(f"{path} is no file")
        found = next((format for format in FORMATS.values() if format.is_one(path)), None)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror or error}") from error
    if found is None:
        raise Unreadable(
            f"{path} is no log that can be replayed. Accepted are: {ACCEPTED}; or a folder with one of these"
        )
    return found


def files_of(path: Path) -> tuple[Format, list[Path]]:
    """The format of a file or folder, and the log's files in it.

    Raises:
        Unreadable: there is no log.
    """
    if not path.is_dir():
        return of_file(path), [path]
    for format in map(FORMATS.__getitem__, IN_A_FOLDER):
        if found := format.files_in(path):
            return format, found
    raise Unreadable(f"{path} has no log that can be replayed. Accepted are: {ACCEPTED}; or a folder with one of these")
