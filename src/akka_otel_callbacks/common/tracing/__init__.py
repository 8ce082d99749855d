"""Spans: the job's, joined to the trace that started the run, and what stands under it."""
