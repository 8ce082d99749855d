"""`OTEL_RESOURCE_ATTRIBUTES` as the SDK reads it, and the variable in which a run's identity is handed on."""

from __future__ import annotations

import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.resources import OTELResourceDetector

from akka_otel_callbacks.common.run.handed_on import OWN, RUN_VARIABLE, forwarded, written
from akka_otel_callbacks.common.run.pairs import ATTRIBUTES, parsed

PIECES = st.sampled_from(["a", "b.c", "=", ",", " ", "%20", "%2C", "%3D", "%", "ü", "\t", ";"])


@given(text=st.lists(PIECES, max_size=12).map("".join))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_sdk_reads_the_same(text: str, environment: pytest.MonkeyPatch) -> None:
    """Its resource has these attributes too: a name that were read in another way would be there twice."""
    environment.setenv(ATTRIBUTES, text)
    environment.delenv("OTEL_SERVICE_NAME", raising=False)
    logging.getLogger("opentelemetry.sdk.resources").disabled = True  # it warns of what is no pair
    try:
        found = dict(OTELResourceDetector().detect().attributes)
    finally:
        logging.getLogger("opentelemetry.sdk.resources").disabled = False
    assert parsed(text) == {name: value for name, value in found.items() if name}


VISIBLE = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(VISIBLE.filter(lambda name: not name.startswith(OWN)), VISIBLE))
def test_what_is_handed_on_arrives_whatever_is_in_it(attributes: dict[str, str]) -> None:
    assert forwarded({RUN_VARIABLE: written(attributes)}) == attributes
