"""What the tests share: receivers that speak real OTLP, endpoints that misbehave, tiny models."""
