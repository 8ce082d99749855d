"""What every engine shares: the vocabulary, the telemetry core, the exporters. It knows OpenTelemetry and no engine."""
