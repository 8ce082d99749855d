"""The names under which verl's processes hand on, with each rollout, what is seen of it. The agent loop's process puts
them among the rollout's own extra fields and into its tag, and the trainer's process reads them."""

from __future__ import annotations

TALLY = "akka_otel_tool_calls"
"""`(calls, failures, whether a response did not fit)` of the rollout's tools."""
GRADED = "akka_otel_graded"
"""The calls that scored the rollout, as text."""
TERMS = "akka_otel_terms"
"""The reward function's numbers by name. They are in the tag only."""
