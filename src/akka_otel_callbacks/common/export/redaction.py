"""Keeps secrets off the screen and out of logs, which end up in issues and chats."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, unquote_plus, urlsplit

from akka_otel_callbacks.common.export.otlp.headers import Header, parse

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
SCHEME = re.compile(r"[\"' ]?[A-Za-z0-9+.\-]*")
NO_PORT = re.compile(r"(?<!^dns):(?!\d*$)[^:\]]*$", re.IGNORECASE)
"""Text in the place of a port that is none: a password whose host is missing. gRPC's `dns:collector` has a host."""
BETWEEN_WORDS = re.compile(r"[\s:;=,'\"(){}\[\]]+")
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "grpc_proxy")
SHORTEST = 4
"""Characters of the shortest secret that is searched for. A text would lose half of its words to shorter ones."""


def redact_url(url: str) -> str:
    """The URL without what authenticates: user and password, the query's values, the fragment, and the parts of the
    path that look like tokens. They are also hidden if the URL lacks its scheme or stands in quotes."""
    try:
        urlsplit(url)
    except ValueError:  # not a URL, and nobody knows what is in it
        return HIDDEN
    scheme, has_scheme, rest = url.partition("://")
    if not has_scheme:
        scheme, rest = "", url
    rest, has_fragment, fragment = rest.partition("#")
    rest, _, query = rest.partition("?")
    if "@" in query + fragment or not SCHEME.fullmatch(scheme):  # a password may hold what ends it elsewhere
        return HIDDEN
    _, has_user, rest = rest.rpartition("@")
    place, slash, path = rest.partition("/")
    path = "/".join(HIDDEN if _is_token(part) else part for part in path.split("/"))
    pairs = "&".join(f"{pair.partition('=')[0]}={HIDDEN}" for pair in query.split("&") if pair)
    return "".join(
        (
            scheme + has_scheme,
            HIDDEN + "@" if has_user else "",
            NO_PORT.sub(":" + HIDDEN, place) + slash + path,
            "?" + pairs if pairs else "",
            "#" + HIDDEN if has_fragment else "",
        )
    )


def redact_attribute(name: str, value: object) -> str:
    """A resource attribute's value, hidden where its name or its form says that it is a secret."""
    text = str(value)
    if SECRET_NAME.search(name) or SECRET_VALUE.match(text):
        return HIDDEN
    return redact_url(text) if "://" in text else text


def header_names(environ: Mapping[str, str]) -> list[str]:
    """The names of the headers that the environment adds to exports. Their values are never shown, nor is a name that
    looks like a token."""
    names = [header.name for header in _headers(environ) if header.name]
    return list(dict.fromkeys(HIDDEN if _is_token(name) else name for name in names))


def redact_text(text: str, environ: Mapping[str, str]) -> str:
    """A foreign message, such as a library's error, without the secrets that the OTLP variables hold."""
    secrets = _secrets(environ) if text else ()  # each export asks, and most have nothing to say
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, HIDDEN)
    return text


def _secrets(environ: Mapping[str, str]) -> set[str]:
    found: set[str] = set()
    for header in _headers(environ):
        hidden = header.item.partition("=")[2] if header.name else header.item
        for form in (hidden, unquote(hidden), header.value):
            found.update((form, form.strip(), *BETWEEN_WORDS.split(form)))
    for signal in SIGNALS:
        found.update(_url_secrets(environ.get(f"OTEL_EXPORTER_OTLP_{signal}ENDPOINT", "")))
    for proxy in PROXIES:
        found.update(_url_secrets(environ.get(proxy, "")))
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


def _headers(environ: Mapping[str, str]) -> Iterator[Header]:
    for signal in SIGNALS:
        yield from parse(environ.get(f"OTEL_EXPORTER_OTLP_{signal}HEADERS", ""))


def _is_token(part: str) -> bool:
    plain = unquote(part)
    return bool(TOKEN.fullmatch(plain) or SECRET_VALUE.match(plain))
