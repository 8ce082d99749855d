"""The name of a model: `org/name` as on the hub, or the last part of its path or URL. The rest is left out: it differs
from machine to machine, and it may hold a user, a token or a signature."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import unquote, urlsplit

from akka_otel_callbacks.common.export.redaction import SECRET_VALUE

HUBS = re.compile(r"(www\.)?(huggingface\.co|hf\.co|hf-mirror\.com|hf)$")
"""Hosts with paths that begin with the model's name. The last one stands for the scheme `hf://`."""
CACHED = "models--"
"""What the hub's cache puts before `org--name`, the folder that holds a model's snapshots."""
REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
PLACE = re.compile(rf"({SCHEME.pattern}|/|\\\\|~|\.\.?[/\\]|[A-Za-z]:[/\\])\S*")
SEPARATOR = re.compile(r"[/\\]+")
NO_PARTS = frozenset({"", ".", "..", "~"})
RANDOM = re.compile(r"[A-Za-z0-9]{16}")
"""What a secret has and a name has not: so many characters without a break."""
LONGEST = 128


def model_name(raw: Any) -> str | None:
    """The name of a model, from the place that it was loaded from. None if there is no name in it.

    Args:
        raw: a name on the hub, a path on any system, or a URL.
    """
    if not isinstance(raw, (str, os.PathLike)):
        return None
    place = os.fspath(raw)
    if not isinstance(place, str):
        return None
    parts = _parts(place)
    cached = next((part.removeprefix(CACHED).split("--") for part in parts if part.startswith(CACHED)), None)
    on_hub = SCHEME.match(place) and HUBS.match(_host(place))
    if cached or on_hub:
        return _shown("/".join(cached or parts[:2]).partition("@")[0])
    if not is_place(place) and REPOSITORY.fullmatch(place.strip()) and not os.path.isdir(place.strip()):
        return _shown("/".join(parts))
    return last_part(place)


def run_name(name: Any) -> str | None:
    """The run's name in a configuration. None if that is a path or a URL."""
    return str(name) if name and not is_place(name) else None


def is_place(value: Any) -> bool:
    """Whether a setting is a path or a URL, whatever it is called."""
    return isinstance(value, str) and bool(PLACE.fullmatch(value.strip()))


def last_part(place: str) -> str | None:
    """The last part of a path or of a URL's path, without anything that may be secret. None if nothing is left."""
    parts = _parts(place)
    return _shown(parts[-1]) if parts else None


def _parts(place: str) -> list[str]:
    place = place.strip()
    if SCHEME.match(place):
        try:
            split = urlsplit(place)
        except ValueError:  # nobody knows what is in it
            return []
        if split.scheme == "hf":  # it has no host: its first part is the organization
            place = split.netloc + split.path
        elif any("@" in part for part in split[2:]):  # a password with a slash in it, which looks like a path
            return []
        else:
            place = unquote(split.path)
    path = re.split(r"[?#;]", place, maxsplit=1)[0]
    return [part for part in SEPARATOR.split(path) if part not in NO_PARTS and not re.fullmatch("[A-Za-z]:", part)]


def _host(url: str) -> str:
    try:
        split = urlsplit(url.strip())
        return "hf" if split.scheme == "hf" else split.hostname or ""
    except ValueError:
        return ""


def _shown(name: str) -> str | None:
    """The name, or None if it looks like a user or a token."""
    if "@" in name or any(SECRET_VALUE.match(part) and RANDOM.search(part) for part in name.split("/")):
        return None
    return "".join(character for character in name if character.isprintable())[:LONGEST] or None
