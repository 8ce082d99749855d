"""The job's span, which continues the trace that started the run, and the spans under it."""
