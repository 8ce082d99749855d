"""The headers that `OTEL_EXPORTER_OTLP_HEADERS` adds to exports. They are secrets: no message ever quotes one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

NAME = re.compile(r"[!#$%&*+\-.^_`|~0-9A-Za-z]+")
"""The characters that HTTP allows in a name, without the single quote, which is there only if a shell did not take it
away."""
RAW_VALUE = re.compile(r"[\x20\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]+")
"""The characters that the specification allows in a value, and blanks, as the SDK allows them."""
QUOTED = re.compile(r"^'|'$")
PADDING_ONLY = re.compile(r"=*")
GRPC_NAME = re.compile(r"(?!grpc-)[0-9a-z_.\-]+(?<!-bin)")


@dataclass(frozen=True, slots=True)
class Header:
    """One item of the variable. `name` is empty if the item cannot be used as a header."""

    item: str
    name: str = ""
    value: str = ""


def parse(text: str) -> Iterator[Header]:
    """The items of `name=value,name=value`, names in lower case. A value without blanks is URL-encoded.

    `Authorization: Bearer …`, a bare token or quotes around it all make an item that cannot be used. So does a base64
    token: its padding would be taken for the value, and the token for the name.
    """
    for item in text.split(","):
        if not item.strip():
            continue
        raw_name, _, raw_value = (part.strip() for part in item.partition("="))
        name = unquote(raw_name).strip().lower()
        value = raw_value if " " in raw_value else unquote(raw_value).strip()
        usable = (
            NAME.fullmatch(name)
            and RAW_VALUE.fullmatch(raw_value)
            and not QUOTED.search(raw_value)
            and not PADDING_ONLY.fullmatch(raw_value)
            and value.isprintable()
            and _is_latin_1(value)
        )
        yield Header(item.strip(), name, value) if usable else Header(item.strip())


def fits_grpc(header: Header) -> bool:
    """Whether gRPC takes the header. It allows fewer characters than HTTP, and refuses the whole call for a wrong
    one."""
    return bool(GRPC_NAME.fullmatch(header.name)) and header.value.isascii()


def _is_latin_1(value: str) -> bool:
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True
