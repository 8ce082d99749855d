"""What `akka_otel_callbacks.checkpoints` is made of."""
