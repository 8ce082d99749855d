"""A tiny language model, data and two trainings that run anywhere in seconds, with no hub and no GPU."""
