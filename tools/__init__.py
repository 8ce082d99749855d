"""The generator: what is written from `registry/`, the single source of every telemetry name."""
