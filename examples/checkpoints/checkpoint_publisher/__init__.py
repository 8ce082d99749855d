"""Publishes a training's checkpoints in the background, to a folder or an object store, and restores them."""
