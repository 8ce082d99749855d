"""Runs a notebook as a person would, from its first cell to its last."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"
TIMEOUT_S = 600


def executed(name: str, folder: Path, environ: Mapping[str, str]) -> str:
    """The page that the last cell shows.

    Args:
        name: of the notebook.
        folder: where its kernel runs.
        environ: variables of the kernel, beside those of this process.
    """
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    with mock.patch.dict(os.environ, environ):
        client = NotebookClient(notebook, timeout=TIMEOUT_S, resources={"metadata": {"path": str(folder)}})
        client.execute()
    (result,) = notebook.cells[-1].outputs
    (page,) = re.findall(r'<iframe srcdoc="(.*?)" title=', result["data"]["text/html"], re.DOTALL)
    return html.unescape(page)
