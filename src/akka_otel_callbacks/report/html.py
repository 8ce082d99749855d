"""The page as one HTML file, which opens without a network."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any

ASSETS = files(__package__) / "assets"
LIBRARY = "echarts.min.js"
SCRIPTS = ("format.js", "axis.js", "options.js", "charts.js", "page.js", "live.js")
"""The scripts in their order: each uses those before it."""


def written(page: Mapping[str, Any]) -> str:
    """The file's text.

    Args:
        page: what `page.page` gives. Its texts come from files that anybody may have written, so that none of them may
            end the element that it stands in.
    """
    data = json.dumps(page, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    title = " and ".join(run["name"] for run in page["runs"]) or "akka-otel"
    return Template(_asset("page.html")).substitute(
        title=html.escape(title),
        style=_asset("page.css"),
        data=data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"),
        library=_asset(LIBRARY),
        script="\n".join(map(_asset, SCRIPTS)),
    )


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
