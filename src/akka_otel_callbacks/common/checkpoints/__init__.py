"""The parts of `akka_otel_callbacks.checkpoints`."""
