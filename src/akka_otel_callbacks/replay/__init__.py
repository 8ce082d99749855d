"""The log of a past run, read in whatever form it was kept, and published as the run itself would have published it."""
