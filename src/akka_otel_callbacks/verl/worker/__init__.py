"""What each of verl's worker processes publishes of itself."""


def setup_hook() -> None:
    """For Ray's `worker_process_setup_hook`: loads the plugin in every process of the job, where verl is too old for
    entry points. Ray kills a worker whose hook raises, so whatever fails is reported and the worker goes on."""
    from akka_otel_callbacks.common.guard import guarded

    guarded(_load_plugin)()


def _load_plugin() -> None:
    import akka_otel_callbacks.verl.plugin  # noqa: F401
