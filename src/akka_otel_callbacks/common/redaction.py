"""Keeps secrets off the screen and out of logs, which end up in issues and chats."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, unquote_plus, urlsplit, urlunsplit

HIDDEN = "***"
SECRET_NAME = re.compile(
    r"(?<![a-z])(tokens?|secrets?|passw(or)?ds?|passphrase|pwd|credentials?|auth(orization)?|bearer|jwt|cookie"
    r"|signature|(api|access|private|account|license|ingest(ion)?)[._-]?keys?)(?![a-z])",
    re.IGNORECASE,
)
SECRET_VALUE = re.compile(
    r"(hf_|sk-|gh[pousr]_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA|eyJ|bearer |basic )", re.IGNORECASE
)
TOKEN = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9_\-=+.~:]{20,}")
"""A part of a URL's path that is more likely a token than a name."""
SIGNALS = ("", "METRICS_", "TRACES_")
SHORTEST = 4
"""No text is searched for shorter secrets: it would lose half of its words."""


def redact_url(url: str) -> str:
    """The URL without what authenticates: user and password, the query's values, the fragment, and the parts of the
    path that look like tokens."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        netloc = f"{HIDDEN}@{host}" if "@" in parts.netloc else host
        path = "/".join(HIDDEN if _is_token(part) else part for part in parts.path.split("/"))
        query = "&".join(f"{pair.partition('=')[0]}={HIDDEN}" for pair in parts.query.split("&") if pair)
        return urlunsplit((parts.scheme, netloc, path, query, HIDDEN if parts.fragment else ""))
    except ValueError:  # not a URL, and nobody knows what is in it
        return HIDDEN


def redact_attribute(name: str, value: object) -> str:
    """A resource attribute's value, hidden where its name or its form says that it is a secret."""
    text = str(value)
    if SECRET_NAME.search(name) or SECRET_VALUE.match(text):
        return HIDDEN
    return redact_url(text) if "://" in text else text


def header_names(environ: Mapping[str, str]) -> list[str]:
    """The names of the headers that the environment adds to exports. Their values are never shown."""
    return list(dict.fromkeys(name for name, _ in _headers(environ)))


def redact_text(text: str, environ: Mapping[str, str]) -> str:
    """A foreign message, such as a library's error, without the secrets that the OTLP variables hold."""
    for secret in sorted(_secrets(environ), key=len, reverse=True):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, HIDDEN)
    return text


def _secrets(environ: Mapping[str, str]) -> set[str]:
    found = {form for _, value in _headers(environ) for form in (value, unquote(value), *unquote(value).split())}
    for signal in SIGNALS:
        found.update(_url_secrets(environ.get(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT", "")))
    return found


def _url_secrets(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        yield url
        return
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    values = (pair.partition("=")[2] or pair for pair in parts.query.split("&"))
    tokens = (part for part in parts.path.split("/") if _is_token(part))
    for secret in (user, password, parts.fragment, *values, *tokens):
        yield from (secret, unquote(secret), unquote_plus(secret))


def _headers(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for signal in SIGNALS:
        for pair in environ.get(f"OTEL_EXPORTER_OTLP_{signal}HEADERS", "").split(","):
            name, _, value = pair.partition("=")
            if name.strip():
                yield name.strip(), value.strip()


def _is_token(part: str) -> bool:
    plain = unquote(part)
    return bool(TOKEN.fullmatch(plain) or SECRET_VALUE.match(plain))
