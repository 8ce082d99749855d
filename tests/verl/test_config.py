"""verl's configuration is read and found, and nothing else that a program calls so is ever asked for anything."""

from __future__ import annotations

import configparser
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from akka_otel_callbacks.verl.callers import calling_config
from akka_otel_callbacks.verl.config import asks, backends, get, plain

CONFIG = {"trainer": {"logger": ["console", "akka_otel"]}}


class RaisesOnAnything:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class AnswersEverything:
    def __getattr__(self, name: str) -> Any:
        return AnswersEverything()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __iter__(self) -> Any:
        return iter(["akka_otel"])


class RaisingProperties:
    trainer = property(lambda self: 1 / 0)
    get = property(lambda self: 1 / 0)
    __dict__ = property(lambda self: 1 / 0)  # type: ignore[assignment]
    __class__ = property(lambda self: 1 / 0)  # type: ignore[assignment]


class RaisingDict(dict):  # type: ignore[type-arg]
    def get(self, *args: Any) -> Any:
        raise KeyError("no")


class EndlessDict(dict):  # type: ignore[type-arg]
    def get(self, *args: Any) -> Any:
        return self

    def __iter__(self) -> Any:
        raise RuntimeError("never ends")


def ini() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read_string("[trainer]\nlogger = akka_otel\n")
    return parser


HOSTILE = {
    "an ini file": ini(),
    "its section": ini()["trainer"],
    "a mock": Mock(),
    "a magic mock": MagicMock(),
    "raises on anything": RaisesOnAnything(),
    "answers everything": AnswersEverything(),
    "raising properties": RaisingProperties(),
    "a raising dict": RaisingDict(),
    "an endless dict": EndlessDict(),
    "a namespace": SimpleNamespace(trainer=SimpleNamespace(logger="akka_otel")),
    "a class": dict,
    "text": "trainer",
    "none": None,
    "a mock within": {"trainer": Mock()},
    "a list within": {"trainer": ["logger"]},
    "loggers that answer everything": {"trainer": {"logger": AnswersEverything()}},
    "loggers of any kind": {"trainer": {"logger": [RaisesOnAnything(), None, 3]}},
    "a number of loggers": {"trainer": {"logger": 3}},
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_whatever_else_is_called_config_asks_for_nothing(kind: str) -> None:
    assert asks(HOSTILE[kind]) is False
    assert called_with(HOSTILE[kind]) in (None, HOSTILE[kind])
    assert asks(called_with(HOSTILE[kind])) is False


def called_with(config: Any) -> Any:
    return calling_config()


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if not kind.startswith("loggers") and "number" not in kind])
def test_verls_configuration_is_found_behind_it(kind: str) -> None:
    def program(config: Any) -> Any:
        return helper(HOSTILE[kind])

    def helper(config: Any) -> Any:
        return calling_config()

    assert program(CONFIG) is CONFIG


@pytest.mark.parametrize("kind", HOSTILE)
def test_nor_is_the_object_whose_method_is_called(kind: str) -> None:
    def method(self: Any) -> Any:
        return calling_config()

    assert asks(method(HOSTILE[kind])) is False


def test_a_trainers_own_configuration_is_found() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.config = CONFIG

        def fit(self) -> Any:
            return calling_config()

    assert Trainer().fit() is CONFIG


@pytest.mark.parametrize(
    ("loggers", "expected"),
    [
        ("akka_otel", True),
        (["akka_otel"], True),
        (("console", "akka_otel"), True),
        (["console", "akka_otel"], True),
        (["console"], False),
        ("console", False),
        ("akka_otel_not", False),
        ("", False),
        ([], False),
        (None, False),
    ],
)
def test_a_run_asks_by_its_loggers(loggers: Any, expected: bool) -> None:
    assert asks({"trainer": {"logger": loggers}}) is expected


def test_configurations_of_hydra() -> None:
    omegaconf = pytest.importorskip("omegaconf", reason="comes with verl")
    for loggers in ("akka_otel", ["console", "akka_otel"]):
        config = omegaconf.OmegaConf.create({"trainer": {"logger": loggers, "name": "${nowhere}"}, "unset": "???"})
        assert asks(config)
        assert called_with(config) is config
        assert get(config, "unset", 7) == 7
        assert get(config, "trainer.logger.more", 7) == 7
    assert backends(config.trainer.logger) == ["console", "akka_otel"]


def test_a_configuration_that_cannot_be_worked_out_asks_for_nothing() -> None:
    omegaconf = pytest.importorskip("omegaconf", reason="comes with verl")
    broken = omegaconf.OmegaConf.create({"trainer": {"logger": "${nowhere}"}})
    assert asks(broken) is False
    assert called_with(broken) is None


def test_of_a_configuration_whatever_can_be_worked_out_is_known() -> None:
    omegaconf = pytest.importorskip("omegaconf", reason="comes with verl")
    given = {
        "trainer": {"name": "${nowhere}", "nnodes": 2, "logger": ["a"]},
        "data": {"files": "${no:such}"},
        "n": "${m}",
    }
    assert plain(omegaconf.OmegaConf.create({**given, "m": 3})) == {
        "trainer": {"nnodes": 2, "logger": ["a"]},
        "data": {},
        "n": 3,
        "m": 3,
    }
    assert plain(omegaconf.OmegaConf.create({"a": {"b": "${c}"}, "c": 1})) == {"a": {"b": 1}, "c": 1}


@pytest.mark.parametrize("kind", [kind for kind, config in HOSTILE.items() if not issubclass(type(config), dict)])
def test_nothing_is_known_of_anything_else(kind: str) -> None:
    assert plain(HOSTILE[kind]) is None


def test_the_value_at_a_path() -> None:
    config = {"a": {"b": 0, "none": None}}
    assert get(config, "a.b") == 0
    assert get(config, "a.none", 5) == 5
    assert get(config, "a.b.c", 5) == get(config, "x.y", 5) == get(None, "a", 5) == 5
