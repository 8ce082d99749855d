"""verl's backend: on its own classes where they are installed, on recorded log calls everywhere."""
