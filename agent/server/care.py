"""Liveness, readiness, metrics and the models: what machines ask a server about itself."""

from __future__ import annotations

import asyncio
import shutil

from starlette.responses import Response

from agent.base.errors import HermesError
from agent.server.desk import Desk
from agent.server.faults import answer_of
from agent.server.metrics import CONTENT_TYPE
from agent.server.routing import Asked, Nothing
from agent.server.turns import json_response, require_model

_LEAST_FREE_BYTES = 16 * 1024 * 1024
"""What a turn with large tool results may write before its caller hears of a full disk."""


async def tell_health(_asked: Asked[None, Nothing]) -> Response:
    """Say that the process answers."""
    return json_response({"status": "ok"})


async def tell_readiness(asked: Asked[None, Nothing]) -> Response:
    """Say whether a turn could be run now: 200, else 503 with what is missing."""
    desk = asked.desk
    checks = {
        "store": await asyncio.to_thread(_store_fault, desk),
        "model": await desk.model_check.fault(),
        "server": "stopping" if desk.jobs.is_ending else "",
    }
    is_ready = not any(checks.values())
    shape = {
        "status": "ready" if is_ready else "not ready",
        "checks": {name: fault or "ok" for name, fault in checks.items()},
    }
    return json_response(shape, 200 if is_ready else 503)


def _store_fault(desk: Desk) -> str:
    try:
        desk.store.sessions(limit=1)
        free_bytes = shutil.disk_usage(desk.store.path.parent).free
    except (HermesError, OSError) as error:
        return answer_of(error).message
    if free_bytes < _LEAST_FREE_BYTES:
        return (
            f"the disk of {str(desk.store.path)!r} has {free_bytes} bytes left, where "
            f"{_LEAST_FREE_BYTES} are needed; free some space"
        )
    return ""


async def tell_metrics(asked: Asked[None, Nothing]) -> Response:
    """Return the metrics in Prometheus' text form."""
    return Response(asked.desk.metrics.render(), media_type=CONTENT_TYPE)


async def tell_models(asked: Asked[None, Nothing]) -> Response:
    """List the models that requests may name."""
    return json_response({"object": "list", "data": [_model_shape(asked.desk)]})


async def tell_model(asked: Asked[None, Nothing]) -> Response:
    """Describe one model."""
    require_model(asked.desk, asked.part("model"))
    return json_response(_model_shape(asked.desk))


def _model_shape(desk: Desk) -> dict[str, object]:
    return {
        "id": desk.route.model,
        "object": "model",
        "created": 0,
        "owned_by": "hermes",
        "context_length": desk.route.window_tokens,
    }
