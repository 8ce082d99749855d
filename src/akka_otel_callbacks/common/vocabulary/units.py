"""The units of a step's figures, as types: each names the unit that the registry gives to the figure's metric."""

from __future__ import annotations

from typing import Annotated

Seconds = Annotated[float, "s"]
Bytes = Annotated[int, "By"]
Share = Annotated[float, "1"]
"""A fraction from 0 to 1."""
Reward = Annotated[float, "{reward}"]
"""Weighted, as the engine trains on it."""
Loss = Annotated[float, "{loss}"]
Norm = Annotated[float, "{norm}"]
Rate = Annotated[float, "{rate}"]
Nats = Annotated[float, "{nat}"]
"""Per token."""
Tokens = Annotated[float, "{token}"]
TokensPerSecond = Annotated[float, "{token}/s"]
"""Of one device."""
Completions = Annotated[int, "{completion}"]
Failures = Annotated[int, "{failure}"]
Calls = Annotated[float, "{call}"]
"""Per rollout."""
Rows = Annotated[int, "{row}"]
Epochs = Annotated[float, "{epoch}"]
Steps = Annotated[int, "{step}"]
