"""No secret reaches the screen, whatever form it has."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.export.redaction import header_names, redact_attribute, redact_text, redact_url

SECRETS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/= _-%&@:", min_size=8).filter(
    lambda secret: len(secret.strip()) >= 8 and not secret.strip().startswith("/")
)
WORDS_OF_THE_URL = "https://collector.example:4318/v1/metrics"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://localhost:4318/v1/metrics", "http://localhost:4318/v1/metrics"),
        ("https://user:pw@host:4318/v1/metrics", "https://***@host:4318/v1/metrics"),
        ("https://token@host", "https://***@host"),
        ("https://host/v1/metrics?key=abc&plain", "https://host/v1/metrics?key=***&plain=***"),
        ("https://host/otlp/glc2eyJvIjoiMTIzNDU2Nzg5MCJ9/v1/metrics", "https://host/otlp/***/v1/metrics"),
        ("https://host/sk-short/v1", "https://host/***/v1"),
        ("https://host/api/v1#frag", "https://host/api/v1#***"),
        ("http://[bad", "***"),
        ("http://me:secret", "http://me:***"),
        ("me:secret/x", "me:***/x"),
        ("http://[::1]:4318/v1/metrics", "http://[::1]:4318/v1/metrics"),
        ("dns:collector", "dns:collector"),
        ("localhost:4317", "localhost:4317"),
        ("", ""),
    ],
)
def test_urls(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@given(SECRETS)
def test_no_secret_of_a_url_survives(secret: str) -> None:
    quoted = quote(secret, safe="")
    for url in (
        f"https://{quoted}@collector.example:4318/v1/metrics",
        f"https://me:{quoted}@collector.example:4318/v1/metrics",
        f"https://collector.example:4318/v1/metrics?token={quoted}",
        f"https://collector.example:4318/v1/metrics#{quoted}",
    ):
        shown = redact_url(url)
        assert quoted not in shown
        assert secret not in shown
        message = f"HTTPSConnectionPool: cannot reach {url} (or {secret!s})"
        environ = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url}
        assert secret not in redact_text(message, environ).replace(WORDS_OF_THE_URL, "")
        assert quoted not in redact_text(message, environ).replace(WORDS_OF_THE_URL, "")


@given(SECRETS)
def test_no_header_survives(secret: str) -> None:
    for variable in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS"):
        environ = {variable: f"x-one=1,authorization=Bearer%20{quote(secret, safe='')}"}
        assert header_names(environ) == ["x-one", "authorization"]
        shown = redact_text(f"401 for header 'Bearer {secret}'", environ)
        assert secret.strip() not in shown


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("api_key", "abc", True),
        ("team.apiKey", "abc", True),
        ("vault.token", "abc", True),
        ("DB_PASSWORD", "abc", True),
        ("auth", "abc", True),
        ("note", "hf_abcdefgh", True),
        ("note", "eyJhbGciOi", True),
        ("note", "Bearer abc", True),
        ("author", "jane", False),
        ("tokenizer", "qwen3", False),
        ("keyboard", "de", False),
        ("akka.optimize.training.run.id", "trl-20261129-181005-e710a3d9", False),
        ("akka.optimize.training.run.settings_sha", "a748900ef8c1b524", False),
        ("service.instance.id", "a748900e-f8c1-4b52-9d3e-000000000000", False),
        ("attempt", 1, False),
    ],
)
def test_resource_attributes(name: str, value: object, hidden: bool) -> None:
    assert redact_attribute(name, value) == ("***" if hidden else str(value))


def test_a_url_as_an_attribute_loses_its_password() -> None:
    assert redact_attribute("repo", "https://me:pw@git.example/x") == "https://***@git.example/x"


def test_short_values_do_not_eat_the_message() -> None:
    assert redact_text("a 1 in 10", {"OTEL_EXPORTER_OTLP_HEADERS": "x=1,y=a"}) == "a 1 in 10"
