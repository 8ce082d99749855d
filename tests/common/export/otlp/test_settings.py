"""The OTLP variables: empty ones, wrong ones, and which of them win."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common.export.otlp.settings import OtlpSettings
from akka_otel_callbacks.common.export.redaction import redact_text
from akka_otel_callbacks.common.export.selection import Selection, select
from akka_otel_callbacks.common.export.signals import METRICS, TRACES
from akka_otel_callbacks.common.export.targets.otlp import OtlpTarget

ENDPOINT, PROTOCOL = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL"
METRICS_ENDPOINT = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
GRPC = {PROTOCOL: "grpc"}
SUFFIXES = (
    "ENDPOINT PROTOCOL HEADERS TIMEOUT COMPRESSION INSECURE CERTIFICATE CLIENT_CERTIFICATE CLIENT_KEY "
    "TEMPORALITY_PREFERENCE"
).split()
VARIABLES = [f"OTEL_EXPORTER_OTLP_{signal}{suffix}" for suffix in SUFFIXES for signal in ("", "METRICS_", "TRACES_")]


def settings(environ: Mapping[str, str], signal: str = METRICS) -> OtlpSettings:
    selection = select(environ, "run")
    (target,) = selection.metrics if signal == METRICS else selection.traces
    assert isinstance(target, OtlpTarget), selection.warnings
    return target.settings


def kinds(selection: Selection) -> list[str]:
    return [target.kind for target in (*selection.metrics, *selection.traces)]


NO_ENDPOINTS = {
    "collector:4318": "no scheme",
    "localhost": "no scheme",
    "127.0.0.1:4318/v1/metrics": "no scheme",
    " ": "blank",
    "\t\t": "blank",
    '"http://c:4318"': "quotes",
    "'http://c:4318'": "quotes",
    "http://c:4318'": "quotes",
    "http://c:4318\n": "line break",
    "http://c:43\n18": "line break",
    "http://c :4318": "blank",
    "http://c:4318\x1b[0m": "control",
    "http://": "no host",
    "http://:4318": "no host",
    "http://c:65536": "ort",
    "http://c:0": "port",
    "http://c:http": "ort",
    "http://[::1:4318": "no URL",
    "file:///tmp/otlp": "file",
    "unix:///run/otlp.sock": "unix",
    "http+unix://%2Frun%2Fotlp.sock": "http+unix",
    "grpc://c:4317": "grpc",
    "://c": "scheme",
    "http://" + "ü" * 70 + ":4318": "host",
    "http://" + "a" * 64 + ".example": "host",
    "http://a..b:4318": "host",
    'http://"c":4318': "host",
    "http://c\\d:4318": "host",
    "http://${COLLECTOR}:4318": "host",
    "http://{{ collector }}:4318": "blank",
}


@pytest.mark.parametrize(("value", "reason"), NO_ENDPOINTS.items())
@pytest.mark.parametrize("named", [{}, {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_TRACES_EXPORTER": "otlp"}])
def test_an_endpoint_that_cannot_be_one_is_one_warning_and_the_files(
    value: str, reason: str, named: dict[str, str]
) -> None:
    selection = select({ENDPOINT: value, **named}, "run")
    assert kinds(selection) == ["file", "file"]
    (warning,) = selection.warnings
    assert warning.startswith(f"{ENDPOINT}=")
    assert reason in warning
    assert warning.isprintable()


def test_a_signal_s_wrong_endpoint_falls_to_the_general_one() -> None:
    selection = select({METRICS_ENDPOINT: "c:4318", ENDPOINT: "http://c:4318"}, "run")
    assert [
        target.settings.endpoint for target in (*selection.metrics, *selection.traces) if isinstance(target, OtlpTarget)
    ] == [
        "http://c:4318/v1/metrics",
        "http://c:4318/v1/traces",
    ]
    assert len(selection.warnings) == 1


def test_a_signal_s_wrong_endpoint_alone_sends_that_signal_to_its_file() -> None:
    selection = select({METRICS_ENDPOINT: "c:4318"}, "run")
    assert kinds(selection) == ["file"]
    assert len(selection.warnings) == 1


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({ENDPOINT: " http://c:4318\t"}, "http://c:4318/v1/metrics"),
        ({ENDPOINT: "HTTP://C:4318"}, "http://C:4318/v1/metrics"),
        ({ENDPOINT: "http://c:4318//"}, "http://c:4318/v1/metrics"),
        ({ENDPOINT: "https://c/otlp/?key=1"}, "https://c/otlp/v1/metrics?key=1"),
        ({ENDPOINT: "http://[::1]:4318"}, "http://[::1]:4318/v1/metrics"),
        ({ENDPOINT: "http://me:pw@c"}, "http://me:pw@c/v1/metrics"),
        ({METRICS_ENDPOINT: "http://c/?key=1"}, "http://c/?key=1"),
        ({METRICS_ENDPOINT: "", ENDPOINT: "http://c"}, "http://c/v1/metrics"),
    ],
)
def test_urls_over_http(environ: dict[str, str], endpoint: str) -> None:
    assert select(environ, "run").warnings == ()
    assert settings(environ).endpoint == endpoint


@pytest.mark.parametrize(
    ("environ", "server", "secure"),
    [
        ({ENDPOINT: "http://c:4317"}, "c:4317", False),
        ({ENDPOINT: "https://c:4317/"}, "c:4317", True),
        ({ENDPOINT: "HTTPS://c:4317"}, "c:4317", True),
        ({ENDPOINT: "http://c:4317", "OTEL_EXPORTER_OTLP_INSECURE": ""}, "c:4317", False),
        ({ENDPOINT: "http://c:4317", "OTEL_EXPORTER_OTLP_INSECURE": "false"}, "c:4317", False),
        ({ENDPOINT: "https://c:4317", "OTEL_EXPORTER_OTLP_INSECURE": "true"}, "c:4317", True),
        ({ENDPOINT: "https://c:4317", "OTEL_EXPORTER_OTLP_METRICS_INSECURE": "true"}, "c:4317", True),
        ({ENDPOINT: "c:4317"}, "c:4317", True),
        ({ENDPOINT: "c:4317", "OTEL_EXPORTER_OTLP_INSECURE": " True "}, "c:4317", False),
        (
            {ENDPOINT: "c:4317", "OTEL_EXPORTER_OTLP_METRICS_INSECURE": "", "OTEL_EXPORTER_OTLP_INSECURE": "true"},
            "c:4317",
            False,
        ),
        ({ENDPOINT: "http://[::1]:4317"}, "[::1]:4317", False),
        ({ENDPOINT: "http://bücher.example:4317"}, "xn--bcher-kva.example:4317", False),
        ({ENDPOINT: "unix:///run/otlp.sock", "OTEL_EXPORTER_OTLP_INSECURE": "true"}, "unix:///run/otlp.sock", False),
        ({ENDPOINT: "dns:///c:4317"}, "dns:///c:4317", True),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, "localhost:4317", False),
    ],
)
def test_servers_over_grpc(environ: dict[str, str], server: str, secure: bool) -> None:
    assert select({**GRPC, **environ}, "run").warnings == ()
    found = settings({**GRPC, **environ})
    assert (found.endpoint, found.secure) == (server, secure)


@pytest.mark.parametrize(
    "value", ["", " ", '"http://c:4317"', "http://c:4317\n", "http://c:99999", "ftp://c:1", "c:port", "http://"]
)
def test_what_is_no_server_for_grpc(value: str) -> None:
    selection = select({**GRPC, ENDPOINT: value}, "run")
    assert kinds(selection) == ["file", "file"]
    assert len(selection.warnings) == (1 if value else 0)


def test_a_user_in_a_url_is_not_sent_over_grpc_and_not_shown() -> None:
    environ = {**GRPC, ENDPOINT: "http://me:s3cret@c:4317"}
    assert settings(environ).endpoint == "c:4317"
    (warning,) = select(environ, "run").warnings
    assert "HEADERS" in warning
    assert "s3cret" not in warning


@pytest.mark.parametrize("empty", ["", "  "])
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf", ""])
def test_an_empty_variable_is_one_that_is_not_set(empty: str, protocol: str) -> None:
    said = {ENDPOINT: "http://c:4317", PROTOCOL: protocol}
    emptied = {name: empty for name in VARIABLES if not name.endswith("ENDPOINT") or not empty}
    for signal in (METRICS, TRACES):
        assert settings({**emptied, **said}, signal) == settings(said, signal)
    assert select({**emptied, **said}, "run").warnings == ()


def test_a_timeout_is_a_day_at_most() -> None:
    """No clock takes more."""
    assert settings({ENDPOINT: "http://c:4318", "OTEL_EXPORTER_OTLP_TIMEOUT": "1e300"}).timeout_s == 86_400


def test_a_signal_s_variable_comes_before_the_general_one() -> None:
    environ = {ENDPOINT: "http://c:4318"}
    for name, mine, general in (
        ("TIMEOUT", "3", "4"),
        ("COMPRESSION", "gzip", "deflate"),
        ("CERTIFICATE", "/mine.pem", "/general.pem"),
        ("HEADERS", "a=1", "b=2"),
    ):
        environ |= {f"OTEL_EXPORTER_OTLP_METRICS_{name}": mine, f"OTEL_EXPORTER_OTLP_{name}": general}
    metrics, traces = settings(environ), settings(environ, TRACES)
    assert (metrics.timeout_s, metrics.compression, metrics.certificate) == (3, "gzip", "/mine.pem")
    assert (traces.timeout_s, traces.compression, traces.certificate) == (4, "deflate", "/general.pem")
    assert (metrics.headers, traces.headers) == ({"a": "1"}, {"b": "2"})


@pytest.mark.parametrize(
    ("name", "value", "attribute", "used"),
    [
        ("TIMEOUT", "soon", "timeout_s", 10),
        ("TIMEOUT", "-1", "timeout_s", 10),
        ("TIMEOUT", "0", "timeout_s", 10),
        ("TIMEOUT", "nan", "timeout_s", 10),
        ("TIMEOUT", "inf", "timeout_s", 10),
        ("COMPRESSION", "brotli", "compression", "gzip"),
        ("METRICS_TEMPORALITY_PREFERENCE", "sometimes", "temporality", "cumulative"),
        ("PROTOCOL", "http/json", "protocol", "http/protobuf"),
    ],
)
def test_a_wrong_value_is_one_warning_for_both_signals(name: str, value: str, attribute: str, used: Any) -> None:
    environ = {ENDPOINT: "http://c:4318", f"OTEL_EXPORTER_OTLP_{name}": value}
    assert getattr(settings(environ), attribute) == used
    (warning,) = select(environ, "run").warnings
    assert warning.startswith(f"OTEL_EXPORTER_OTLP_{name}={value!r} is not ")


USABLE = {
    "authorization=Bearer%20x1": {"authorization": "Bearer x1"},
    "Authorization=Bearer x1": {"authorization": "Bearer x1"},
    " a = 1 , b=2,, ": {"a": "1", "b": "2"},
    "a=b=c==": {"a": "b=c=="},
    "": {},
}


@pytest.mark.parametrize(("text", "headers"), USABLE.items())
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_headers(text: str, headers: dict[str, str], protocol: str) -> None:
    environ = {ENDPOINT: "http://c:4317", PROTOCOL: protocol, "OTEL_EXPORTER_OTLP_HEADERS": text}
    assert settings(environ).headers == headers
    assert select(environ, "run").warnings == ()


SECRET = "s3cr3t.T0ken"
UNUSABLE = [
    f"Authorization: Bearer {SECRET}",
    f"Authorization:Basic {SECRET}==",
    SECRET,
    f"{SECRET}=",
    f"{SECRET}==",
    f'"authorization={SECRET}"',
    f'authorization="{SECRET}"',
    f"'authorization=Bearer {SECRET}'",
    f"authorization='Bearer {SECRET}'",
    f"authorization=Bearer%0A{SECRET}",
    f"authorization={SECRET}\n",
    f"authorization={SECRET}\nx: 1",
    f"author ization={SECRET}",
    f"={SECRET}",
    f"authorization=%E2%82%AC%20{SECRET}",
    f"authorization={SECRET};x=1",
    f"{{authorization: {SECRET}}}",
]


@pytest.mark.parametrize("text", UNUSABLE)
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("signal", ["", "METRICS_", "TRACES_"])
def test_a_header_that_cannot_be_used_is_a_warning_without_it(text: str, protocol: str, signal: str) -> None:
    variable = f"OTEL_EXPORTER_OTLP_{signal}HEADERS"
    environ = {ENDPOINT: "http://c:4317", PROTOCOL: protocol, variable: f"x-fine=1,{text}"}
    selection = select(environ, "run")
    if text.endswith("\n") and text.count("\n") == 1:  # blanks around a value are not part of it
        assert selection.warnings == ()
        return
    (warning,) = selection.warnings
    assert warning.startswith(f"{variable}: 1 of 2 ")
    for said in (warning, repr(selection), str(selection.metrics[0])):
        assert SECRET not in said
    assert SECRET not in redact_text(f"400: no header {text!r} is known, nor {SECRET}", environ)


def test_a_header_that_only_http_can_send() -> None:
    environ = {ENDPOINT: "http://c:4317", "OTEL_EXPORTER_OTLP_HEADERS": "x-name=caf%C3%A9,grpc-x=1,x-bin=1"}
    assert set(settings(environ).headers) == {"x-name", "grpc-x", "x-bin"}
    assert settings({**environ, **GRPC}).headers == {}
    assert len(select({**environ, **GRPC}, "run").warnings) == 1


WORDS = st.sampled_from(["http://", "c", ":", "4318", "/", "?", "#", "@", "[", "]", " ", "\n", '"', "=", ",", "ü", "%"])
VALUES = st.text() | st.lists(WORDS).map("".join)


@given(st.dictionaries(st.sampled_from(VARIABLES), VALUES), st.sampled_from(["", "otlp"]))
def test_any_value_is_a_setting_or_one_line(environ: dict[str, str], exporter: str) -> None:
    selection = select({**environ, "OTEL_METRICS_EXPORTER": exporter, "OTEL_TRACES_EXPORTER": exporter}, "run")
    for target in (*selection.metrics, *selection.traces):
        assert target.kind in ("otlp", "file")
        assert str(target)
    assert all(warning.isprintable() for warning in selection.warnings)
    assert len(set(selection.warnings)) == len(selection.warnings)


def test_a_password_in_the_place_of_a_port_is_not_shown() -> None:
    for url in ("http://me:secret", "http://me:secret/more@host:4318"):
        (warning,) = select({"OTEL_EXPORTER_OTLP_ENDPOINT": url}, "run").warnings
        assert "secret" not in warning
        assert "port" in warning
