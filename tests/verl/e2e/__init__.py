"""Real trainings of verl on this machine's CPU, and what a collector receives of them."""
