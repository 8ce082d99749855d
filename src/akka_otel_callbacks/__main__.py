"""`python -m akka_otel_callbacks` is `akka-otel`."""

from akka_otel_callbacks.cli import main

main()
