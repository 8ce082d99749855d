"""What a service that runs training jobs publishes. `akka_otel_callbacks.service` is its public face."""
