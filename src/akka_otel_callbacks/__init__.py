"""OpenTelemetry for LLM fine-tuning jobs: the same figures, under the same names, from TRL and verl."""

__version__ = "0.1.0"
