"""The GPUs that this process holds: which they are, how they are, and what the driver reports of them."""
