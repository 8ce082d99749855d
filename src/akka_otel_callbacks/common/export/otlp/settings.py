"""What the OTLP variables say for one signal.

No other module reads them. An empty variable is one that is not set, a value that cannot be used costs one
warning, and what stays is valid for the transport. The SDK's exporters read them while they are made: over gRPC an
empty variable of theirs is an error or means TLS, and a header that they cannot use is printed whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit, urlunsplit

from akka_otel_callbacks.common.export.otlp.headers import Header, fits_grpc, parse
from akka_otel_callbacks.common.export.redaction import redact_url
from akka_otel_callbacks.common.text import one_line

HTTP, GRPC = "http/protobuf", "grpc"
PROTOCOLS = (HTTP, GRPC)
DEFAULT_ENDPOINT = {HTTP: "http://localhost:4318", GRPC: "http://localhost:4317"}
DEFAULT_TIMEOUT_S, LONGEST_TIMEOUT_S = 10.0, 86_400.0
COMPRESSIONS = ("gzip", "none", "deflate")
PLAIN = "none"
TEMPORALITIES = ("cumulative", "delta", "lowmemory")
NO_HOST = re.compile(r"[\"'\\<>^`{|}$*()&;]")
"""Characters that no host's name has. A template or a shell may have left them there."""
GRPC_NAMES = re.compile(r"(dns|unix|unix-abstract|ipv4|ipv6|vsock|xds):", re.IGNORECASE)
"""How a gRPC name of a server begins, which is no URL."""


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """How one signal is sent.

    Attributes:
        endpoint: HTTP's URL with the signal's path; gRPC's name of the server, without a scheme.
        secure: whether gRPC speaks TLS. HTTP has it in the URL.
    """

    signal: str
    protocol: str
    endpoint: str
    secure: bool
    headers: Mapping[str, str] = field(repr=False)
    timeout_s: float
    compression: str
    temporality: str
    certificate: str
    client_certificate: str
    client_key: str
    credentials: str
    """The entry point that supplies the credentials, as the SDK's exporters have it."""
    environ: Mapping[str, str] = field(repr=False, compare=False)
    """The environment from which the settings were read. It holds the secrets that must not be shown."""


class OtlpVariables:
    """The variables of one signal: `OTEL_EXPORTER_OTLP_<SIGNAL>_…` before `OTEL_EXPORTER_OTLP_…`."""

    def __init__(self, environ: Mapping[str, str], signal: str, warnings: list[str]) -> None:
        self._environ, self._signal, self._warnings = environ, signal, warnings
        self.protocol = self._choice("PROTOCOL", PROTOCOLS)
        self.endpoint_variable = ""
        """The variable that names the endpoint. Empty if no variable can be used."""
        self.wrong_endpoint = ""
        """The first variable whose endpoint cannot be used."""
        self._url = self._first_endpoint()
        self.headers = self._headers()

    @property
    def url(self) -> str:
        """The endpoint as it was written, over HTTP with the path of the signal. It may hold secrets."""
        url = self._url or DEFAULT_ENDPOINT[self.protocol]
        if self.protocol == GRPC or self.endpoint_variable == self._names("ENDPOINT")[0]:
            return url
        parts = urlsplit(url)
        path = f"{parts.path.rstrip('/')}/v1/{self._signal.lower()}"
        return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))

    def settings(self) -> OtlpSettings:
        """All settings that an exporter needs."""
        over_grpc = self.protocol == GRPC
        return OtlpSettings(
            signal=self._signal,
            protocol=self.protocol,
            endpoint=_grpc_server(self.url) if over_grpc else self.url,
            secure=self._is_secure(),
            headers=self.headers,
            timeout_s=self._timeout_s(),
            compression=self._choice("COMPRESSION", COMPRESSIONS),
            temporality=self._choice("TEMPORALITY_PREFERENCE", TEMPORALITIES) if self._signal == "METRICS" else "",
            certificate=self._text("CERTIFICATE"),
            client_certificate=self._text("CLIENT_CERTIFICATE"),
            client_key=self._text("CLIENT_KEY"),
            credentials=self._credentials(),
            environ=self._environ,
        )

    def _names(self, ending: str) -> tuple[str, str]:
        return f"OTEL_EXPORTER_OTLP_{self._signal}_{ending}", f"OTEL_EXPORTER_OTLP_{ending}"

    def _set(self, ending: str) -> list[tuple[str, str]]:
        """The variables that are set to something, with their values."""
        pairs = ((name, self._environ.get(name, "").strip()) for name in self._names(ending))
        return [(name, value) for name, value in pairs if value]

    def _text(self, ending: str) -> str:
        return next((value for _, value in self._set(ending)), "")

    def _choice(self, ending: str, choices: tuple[str, ...]) -> str:
        """The first value that is one of the choices. The first choice if there is no such value."""
        for name, value in self._set(ending):
            if value.lower() in choices:
                return value.lower()
            self._warn(f"{name}={_shown(value)} is not one of {', '.join(choices)}; it is ignored")
        return choices[0]

    def _timeout_s(self) -> float:
        """The timeout in seconds, as Python's SDK reads it. The specification means milliseconds."""
        for name, value in self._set("TIMEOUT"):
            try:
                seconds = float(value)
            except ValueError:
                seconds = 0.0
            if 0 < seconds < float("inf"):
                return min(seconds, LONGEST_TIMEOUT_S)
            self._warn(f"{name}={_shown(value)} is not a positive number of seconds; it is ignored")
        return DEFAULT_TIMEOUT_S

    def _headers(self) -> Mapping[str, str]:
        for name, value in self._set("HEADERS"):
            items = list(parse(value))
            usable = [item for item in items if self._can_be_sent(item)]
            if len(usable) < len(items):
                self._warn(
                    f"{name}: {len(items) - len(usable)} of {len(items)} cannot be used as a header and is left out; "
                    "write name=value,name=value without quotes and with URL-encoded values (values are not shown, "
                    "they may be secrets)"
                )
            return {item.name: item.value for item in usable}
        return {}

    def _can_be_sent(self, header: Header) -> bool:
        return bool(header.name) and (self.protocol == HTTP or fits_grpc(header))

    def _first_endpoint(self) -> str:
        for name in self._names("ENDPOINT"):
            value = self._environ.get(name, "")
            if not value:
                continue
            url = value.strip(" \t")
            wrong = _what_is_wrong(url, self.protocol)
            if not wrong:
                self.endpoint_variable = name
                if self.protocol == GRPC and "@" in url:
                    self._warn(
                        f"{name}: user and password of a URL are not sent over gRPC; use {self._names('HEADERS')[1]}"
                    )
                return url
            self.wrong_endpoint = self.wrong_endpoint or name
            self._warn(f"{name}={_shown(redact_url(value))} cannot be used: {wrong}")
        return ""

    def _is_secure(self) -> bool:
        """Whether to use TLS. The URL's scheme decides. `INSECURE` is for an endpoint without a scheme, and is false by
        default."""
        scheme, has_scheme, _ = self.url.partition("://")
        if has_scheme and scheme.lower() in ("http", "https"):
            return scheme.lower() == "https"
        return self._text("INSECURE").lower() != "true"

    def _credentials(self) -> str:
        transport = "GRPC" if self.protocol == GRPC else "HTTP"
        signal, general = (
            self._environ.get(f"OTEL_PYTHON_EXPORTER_OTLP_{transport}_{part}CREDENTIAL_PROVIDER", "").strip()
            for part in (f"{self._signal}_", "")
        )
        return general or signal

    def _warn(self, warning: str) -> None:
        if warning not in self._warnings:  # the other signal reads the same variable
            self._warnings.append(warning)


def _what_is_wrong(url: str, protocol: str) -> str:
    """Why nothing can be sent to the endpoint. Empty if the endpoint is valid."""
    if not url:
        return "it is blank"
    if not url.isprintable() or any(char.isspace() for char in url):
        return "there is a blank, a line break or a control character in it"
    if url[0] in "\"'" or url[-1] in "\"'":
        return "the quotes are part of the value"
    has_scheme = "://" in url
    if protocol == GRPC:
        if GRPC_NAMES.match(url):
            return ""
        return _what_is_wrong_with_the_address(url if has_scheme else f"http://{url}")
    if not has_scheme:
        return "it has no scheme; write it like http://collector:4318"
    return _what_is_wrong_with_the_address(url)


def _what_is_wrong_with_the_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
        host = parts.hostname or ""
    except ValueError as error:  # its message has the value, and what follows a colon may be a password
        return "its port is no number up to 65535" if "ort" in str(error) else "it is no URL"
    if parts.scheme not in ("http", "https"):
        return f"its scheme is {parts.scheme!r}; http and https can be used"
    if not host:
        return "it names no host"
    if not _can_be_a_host(host):
        return "its host cannot be the name of one"
    return "its port is 0" if port == 0 else ""


def _can_be_a_host(host: str) -> bool:
    try:
        host.encode("idna")
    except UnicodeError:  # a part of it is empty or too long
        return False
    return not NO_HOST.search(host)


def _grpc_server(url: str) -> str:
    """The `host:port` of a URL. A name that is gRPC's own stays as it is. User and password have no place in a gRPC
    call."""
    if GRPC_NAMES.match(url):
        return url
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return _host_and_port(parts)


def _host_and_port(parts: SplitResult) -> str:
    netloc = parts.netloc.rpartition("@")[2]
    return netloc if netloc.isascii() else netloc.encode("idna").decode()


def _shown(value: str) -> str:
    return repr(one_line(value, 100))
