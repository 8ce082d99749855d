"""The package's own log lines as OTLP log records, with the trace that they belong to."""
