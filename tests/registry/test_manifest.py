"""The registry's manifest, by which Weaver knows it."""

from __future__ import annotations

import re

import yaml
from opentelemetry.semconv.schemas import Schemas

from tools.generate import ROOT

MANIFEST = (ROOT / "registry" / "manifest.yaml").read_text(encoding="utf-8")


def test_the_url_names_the_registry_and_its_version() -> None:
    assert re.fullmatch(r"https?://[^/]+(/[^/]+)+/\d+\.\d+\.\d+", yaml.safe_load(MANIFEST)["schema_url"])


def test_the_conventions_that_it_was_checked_with_are_known_here() -> None:
    (version,) = re.findall(r"semantic conventions (\d+\.\d+\.\d+)", MANIFEST)
    assert f"https://opentelemetry.io/schemas/{version}" in {schema.value for schema in Schemas}
