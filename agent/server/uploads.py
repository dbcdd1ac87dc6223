"""Bodies on their way in: what stops coming is given up, and a server that stops waits for none.

An ASGI layer around a whole application. Read next: `run.py`.
"""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.server.faults import INVALID, SERVER, Fault

SILENCE_S = 30.0
"""How long nothing may come of a body before its request is given up."""


class Uploads:
    """Passes requests on to `app`, whose `receive` raises Fault when a body does not go on coming.

    Concurrency: `stop` in the loop that requests are served in.
    """

    def __init__(self, app: ASGIApp, *, silence_s: float = SILENCE_S) -> None:
        self._app = app
        self._silence_s = silence_s
        self._waits: set[asyncio.Timeout] = set()
        self._is_stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_whole = scope["type"] != "http"

        async def take() -> Message:
            nonlocal is_whole
            if is_whole:
                return await receive()
            message = await self._next_piece(receive)
            is_whole = not message.get("more_body", False)
            return message

        await self._app(scope, take, send)

    async def _next_piece(self, receive: Receive) -> Message:
        """Return what comes next of a body. Raises: Fault with 408 or 503 when nothing does."""
        wait = asyncio.timeout(0.0 if self._is_stopping else self._silence_s)
        try:
            async with wait:
                self._waits.add(wait)
                return await receive()
        except TimeoutError:
            raise self._fault() from None
        finally:
            self._waits.discard(wait)

    def _fault(self) -> Fault:
        if self._is_stopping:
            return Fault(
                503,
                "the server is stopping and the body has not come yet; send the request again",
                code="stopping",
                type=SERVER,
            )
        return Fault(
            408,
            f"nothing came of the body for {self._silence_s:g} s; send the request again",
            code="upload_timeout",
            type=INVALID,
        )

    def stop(self) -> None:
        """Give up every body that is not there yet."""
        self._is_stopping = True
        now = asyncio.get_running_loop().time()
        for wait in self._waits:
            wait.reschedule(now)
