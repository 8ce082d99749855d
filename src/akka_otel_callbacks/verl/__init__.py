"""Telemetry for verl: add `akka_otel` to `trainer.logger`. Importing this package imports nothing of verl."""
