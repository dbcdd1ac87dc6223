"""The way of an answer from its thread to the client."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from agent.server import proxy_outlet
from agent.server.proxy_outlet import Outlet, Sign, Start


def test_a_thread_that_settles_goes_on_when_the_client_has_what_was_put(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proxy_outlet, "_SETTLE_S", 15.0)
    told: list[Any] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        told.append(message.get("body", message["type"]))

    async def main() -> None:
        outlet = Outlet(company_s=60)

        def answer() -> None:
            outlet.put(Start(200, [], b"one"))
            outlet.settle()
            told.append("settled")
            outlet.put(b"two")
            outlet.put(Sign.END)

        thread = asyncio.create_task(asyncio.to_thread(answer))
        assert await outlet.pass_on(send)
        await thread

    asyncio.run(main())
    assert told == ["http.response.start", b"one", "settled", b"two", b""]


def test_a_client_that_left_or_takes_nothing_holds_no_thread_up_that_settles() -> None:
    async def main() -> None:
        takes_nothing, left = Outlet(company_s=60), Outlet(company_s=60)
        for outlet in (takes_nothing, left):
            await asyncio.to_thread(outlet.put, b"one")
        left.leave()
        for outlet in (takes_nothing, left):
            await asyncio.wait_for(asyncio.to_thread(outlet.settle), 10)

    asyncio.run(main())
