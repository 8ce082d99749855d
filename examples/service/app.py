"""A small trainer service: python examples/service/app.py --database service.db --port 8000

It admits runs, queues them for devices, trains them as `akka-otel demo` processes and publishes what it does. Start
several on one database, each with its own --port and --instance, and they share the work. See README.md.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from store import Refused, Run, Store
from trainer import Trainer

from akka_otel_callbacks.service import ServiceTelemetry


def service(store: Store, folder: Path, instance: str | None) -> Starlette:
    """The ASGI application of one instance."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with ServiceTelemetry(store.state, instance=instance) as telemetry:  # here, where the server has forked already
            app.state.trainer = Trainer(store, telemetry, folder)
            serving = asyncio.ensure_future(app.state.trainer.serve())
            yield
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving

    async def submit(request: Request) -> JSONResponse:
        asked = {**await request.json(), "traceparent": request.headers.get("traceparent")}
        return JSONResponse(shown(request.app.state.trainer.submit(**asked)), 201)

    async def runs(_: Request) -> JSONResponse:
        return JSONResponse([shown(run) for run in store.runs()])

    async def run(request: Request) -> JSONResponse:
        return JSONResponse(shown(store.run(request.path_params["id"])))

    def act(name: str) -> Callable[..., Any]:
        async def acting(request: Request) -> JSONResponse:
            getattr(request.app.state.trainer, name)(store.run(request.path_params["id"]))
            return JSONResponse({}, 202)

        return acting

    async def pipeline(request: Request) -> JSONResponse:
        return JSONResponse({"id": request.app.state.trainer.begin_pipeline(**await request.json())}, 201)

    async def refused(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 409 if isinstance(error, Refused) else 400)

    return Starlette(
        routes=[
            Route("/runs", submit, methods=["POST"]),
            Route("/runs", runs),
            Route("/runs/{id}", run),
            *(Route(f"/runs/{{id}}/{name}", act(name), methods=["POST"]) for name in ("pause", "resume", "cancel")),
            Route("/pipelines", pipeline, methods=["POST"]),
        ],
        exception_handlers={Refused: refused, TypeError: refused, ValueError: refused},
        lifespan=lifespan,
    )


def shown(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "project": run.progress.project,
        "phase": run.progress.phase,
        "claim": run.claim,
        "instance": run.instance,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--database", type=Path, default=Path("service.db"))
    options.add_argument("--folder", type=Path, default=Path("jobs"), help="where the jobs write")
    options.add_argument("--port", type=int, default=8000)
    options.add_argument("--instance", help="this instance's name; without one, the pod or the process")
    options.add_argument("--devices", type=int, default=2, help="devices of the pool")
    options.add_argument("--quota", action="append", default=[], metavar="PROJECT=DEVICES")
    chosen = options.parse_args()
    quotas = {project: int(devices) for project, _, devices in (item.partition("=") for item in chosen.quota)}
    store = Store(chosen.database, chosen.devices, quotas or {"demo": chosen.devices})
    uvicorn.run(service(store, chosen.folder, chosen.instance), port=chosen.port, log_level="warning")


if __name__ == "__main__":
    main()
