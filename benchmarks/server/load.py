"""A client under load: raw HTTP/1.1 on asyncio, times of the first byte of each answer."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import orjson

from agent.base.messages import Message
from agent.base.record import dataclass

Talk = Callable[[int, int], list[Message]]
"""The messages of request `round` of client `number`."""
Headers = Callable[[int], dict[str, str]]
"""The headers of a client."""


@dataclass(frozen=True)
class Load:
    """How many clients ask at once, how often each, and what."""

    clients: int
    rounds: int
    talk: Talk


@dataclass(frozen=True)
class Measured:
    """What came of a load: seconds to the first byte of each answer, sorted, and for the whole."""

    first_byte_s: Sequence[float]
    whole_s: float

    @property
    def per_second(self) -> float:
        """Requests a second."""
        return len(self.first_byte_s) / self.whole_s

    def percentile_ms(self, share: float) -> float:
        """Return the time to the first byte that a share of the requests kept, in milliseconds."""
        place = min(len(self.first_byte_s) - 1, int(share * len(self.first_byte_s)))
        return self.first_byte_s[place] * 1000

    @property
    def median_ms(self) -> float:
        """Half of the requests were answered within this."""
        return statistics.median(self.first_byte_s) * 1000


def measure(base_url: str, load: Load, headers: Headers) -> Measured:
    """Run a load against an endpoint; answers are streamed and read to their end."""
    return asyncio.run(_measure(base_url, load, headers))


async def _measure(base_url: str, load: Load, headers: Headers) -> Measured:
    started = time.perf_counter()
    clients = [_client(base_url, load, number, headers) for number in range(load.clients)]
    times = [seconds for client in await asyncio.gather(*clients) for seconds in client]
    return Measured(sorted(times), time.perf_counter() - started)


async def _client(base_url: str, load: Load, number: int, headers: Headers) -> list[float]:
    parts = urlsplit(base_url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    given = "".join(f"{name}: {value}\r\n" for name, value in headers(number).items())
    times = []
    for place in range(load.rounds):
        fields = {"model": "stub-model", "stream": True}
        body = orjson.dumps({**fields, "messages": load.talk(number, place)})
        head = (
            f"POST {parts.path}/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\n"
            f"{given}content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        asked = time.perf_counter()
        writer.write(head.encode() + body)
        status = await reader.readline()
        while (await reader.readline()).strip():
            pass
        size = await reader.readline()
        times.append(time.perf_counter() - asked)
        if b" 200 " not in status:
            raise RuntimeError(f"{base_url} answered {status!r}")
        while int(size, 16):
            await reader.readexactly(int(size, 16) + 2)
            size = await reader.readline()
        await reader.readline()
    writer.close()
    return times
