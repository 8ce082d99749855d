"""Foreign text made harmless: what a collector, a library or a user's data says, before it is shown or sent."""

from __future__ import annotations

import hashlib
import re

LONGEST_MESSAGE = 300
LONGEST_LABEL = 120
"""Characters of an attribute's value: a longer one is cut, because every export repeats it in every series."""

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)", re.DOTALL)
"""What a terminal would obey: colours, the title, the cursor."""
DIGEST_LENGTH = 8


def one_line(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """A message on one line, without what a terminal would obey, and cut."""
    visible = ESCAPES.sub("", text[: 20 * longest])
    words = " ".join("".join(char if char.isprintable() else " " for char in visible).split())
    return words if len(words) <= longest else words[: longest - 1] + "…"


def underscored(name: str) -> str:
    """An attribute's name as the name of a label in Prometheus."""
    return re.sub(r"\W", "_", name)


def label(value: str) -> str:
    """An attribute's value in a form that every exporter takes. A lone surrogate, which is not UTF-8, would make the
    whole export fail. It is replaced, like control characters, and what is longer than `LONGEST_LABEL` is cut. A value
    that had to be changed ends in a digest, so that two such values stay two series."""
    if len(value) <= LONGEST_LABEL and value.isprintable():
        return value
    digest = hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:DIGEST_LENGTH]
    kept = value[: LONGEST_LABEL - DIGEST_LENGTH - 1]
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in kept) + "~" + digest
