"""A hash that is equal exactly for equal settings."""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from akka_otel_callbacks.common.run.settings_hash import settings_sha
from tests.common.scripts import run

NAME = st.text(max_size=5)
LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | NAME
NESTED = st.lists(LEAF, max_size=3) | st.dictionaries(NAME, LEAF, max_size=3)
SETTINGS = st.dictionaries(NAME, LEAF | NESTED, max_size=4)


@given(SETTINGS, st.integers(0, 3))
def test_the_hash_does_not_see_the_order(settings: dict, turn: int) -> None:
    items = list(settings.items())
    assert settings_sha(dict(items[turn:] + items[:turn])) == settings_sha(settings)
    assert settings_sha(dict(reversed(items))) == settings_sha(settings)
    assert re.fullmatch("[0-9a-f]{16}", settings_sha(settings))


@given(SETTINGS, NAME, LEAF, LEAF)
def test_the_hash_sees_any_changed_value(settings: dict, name: str, value: Any, other: Any) -> None:
    assume(value != other or isinstance(value, bool) != isinstance(other, bool))
    assert settings_sha({**settings, name: value}) != settings_sha({**settings, name: other})
    assert settings_sha({**settings, name: [value]}) != settings_sha({**settings, name: [other]})


@given(SETTINGS, LEAF)
def test_the_hash_sees_a_setting_that_is_new(settings: dict, value: Any) -> None:
    assume("new" not in settings)
    assert settings_sha(settings) != settings_sha({**settings, "new": value})


class Schedule(str, enum.Enum):
    COSINE = "cosine"


@dataclasses.dataclass
class Adapter:
    rank: int
    modules: set[str] = dataclasses.field(default_factory=lambda: {"q", "k", "v", "o"})


class Plain:
    pass


def reward(completions: list[str]) -> list[float]:
    return []


def penalty(completions: list[str]) -> list[float]:
    return []


@pytest.mark.parametrize(
    ("one", "same"),
    [
        (1, 1.0),
        ((1, 2), [1, 2]),
        ({"b", "a"}, frozenset(["a", "b"])),
        (numpy.int64(5), 5),
        (numpy.float64(0.5), 0.5),
        (torch.tensor(2.0), 2),
        (Schedule.COSINE, "cosine"),
        (Adapter(8), Adapter(8)),
        (Plain(), Plain()),
        (functools.partial(reward, 1), functools.partial(reward, 1)),
        (float("nan"), float("nan")),
    ],
)
def test_equal_settings_have_equal_hashes(one: Any, same: Any) -> None:
    assert settings_sha({"x": one}) == settings_sha({"x": same})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, "1"),
        (1, True),
        (None, "None"),
        (0.1, 0.2),
        (numpy.int64(5), numpy.int64(6)),
        (torch.bfloat16, torch.float32),
        (Adapter(8), Adapter(16)),
        (Adapter(8), Adapter(8, {"q"})),
        (reward, penalty),
        (functools.partial(reward, 1), functools.partial(reward, 2)),
        (Plain, Adapter),
        ({"a": {"b": 1}}, {"a": {"b": 2}}),
    ],
)
def test_different_settings_have_different_hashes(one: Any, other: Any) -> None:
    assert settings_sha({"x": one}) != settings_sha({"x": other})


IN_ANOTHER_PROCESS = """
from dataclasses import dataclass, field
from akka_otel_callbacks.common.run.settings_hash import settings_sha

@dataclass
class Adapter:
    modules: set = field(default_factory=lambda: {"q", "k", "v", "o"})

class Plain: ...

print(settings_sha({"adapter": Adapter(), "object": Plain(), "call": lambda: 0, "set": {"x", "y", "z"}, "type": Plain}))
"""


def test_the_hash_is_the_same_in_another_process(tmp_path: Path) -> None:
    """Where objects lie elsewhere and sets have another order."""
    done = [run(IN_ANOTHER_PROCESS, {"PYTHONHASHSEED": seed}, tmp_path, prelude="") for seed in ("1", "2")]
    assert [process.returncode for process in done] == [0, 0], done[0].stderr
    assert done[0].stdout == done[1].stdout
