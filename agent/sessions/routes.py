"""What is known of a route to a model beyond its settings: learned sizes, and rests after failures.

Kept for every conversation and process that uses the store. Times are the store's clock's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agent.base.clock import Clock
from agent.base.record import dataclass
from agent.sessions.sqlite import Connection, SqliteDatabase

FRESH_STRIKES_S = 86_400.0
"""A route that has not failed for this long after its rest begins anew at the shortest one."""

_READ: Final = """
SELECT coalesce(window, 0), coalesce(output_limit, 0), images, learned_from, learned_at,
    coalesce(rested_until, 0.0), rested_at, failure_class, strikes
FROM routes WHERE provider = ? AND base_url = ? AND model = ?"""
_LEARN: Final = """
INSERT INTO routes (provider, base_url, model, window, output_limit, images, learned_from,
    learned_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (provider, base_url, model) DO UPDATE SET
    window = coalesce(excluded.window, window),
    output_limit = coalesce(excluded.output_limit, output_limit),
    images = coalesce(excluded.images, images),
    learned_from = CASE WHEN excluded.window IS NULL THEN learned_from
        ELSE excluded.learned_from END,
    learned_at = CASE WHEN excluded.window IS NULL THEN learned_at ELSE excluded.learned_at END"""
_REST: Final = """
INSERT INTO routes (provider, base_url, model, rested_until, rested_at, failure_class, strikes)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (provider, base_url, model) DO UPDATE SET
    rested_until = excluded.rested_until, rested_at = excluded.rested_at,
    failure_class = excluded.failure_class, strikes = excluded.strikes"""
_END_REST: Final = """
UPDATE routes SET rested_until = NULL, failure_class = '', strikes = 0
WHERE provider = ? AND base_url = ? AND model = ? AND strikes > 0 AND rested_at <= ?"""


@dataclass(frozen=True)
class RouteKey:
    """What a route is known by; `provider` is the wire, and with a digest of the key for rests."""

    provider: str
    base_url: str
    model: str

    def values(self) -> tuple[str, str, str]:
        """Return the three columns."""
        return self.provider, self.base_url, self.model


@dataclass(frozen=True)
class RouteRecord:
    """What is known of one route.

    0 and None are unknown; `learned_from` says who named the window (`overflow` or `listing`).
    `rested_until` 0 means that it may be asked; `strikes` counts failures without a success.
    Units: instants are Unix epoch seconds.
    """

    window_tokens: int = 0
    output_tokens: int = 0
    takes_images: bool | None = None
    learned_from: str = ""
    learned_at: float = 0.0
    rested_until: float = 0.0
    rested_at: float = 0.0
    failure_class: str = ""
    strikes: int = 0


class RouteBook:
    """The `routes` table. Safe to use from any thread."""

    def __init__(self, database: SqliteDatabase, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def read(self, key: RouteKey) -> RouteRecord:
        """Return what is known of a route; an empty record when nothing is."""
        with self._database.read() as connection:
            return _read(connection, key)

    def learn(
        self,
        key: RouteKey,
        *,
        window_tokens: int | None = None,
        output_tokens: int | None = None,
        takes_images: bool | None = None,
        learned_from: str = "",
    ) -> RouteRecord:
        """Keep what a provider said of a route and return all that is known; None says nothing."""
        images = None if takes_images is None else int(takes_images)
        learned = (window_tokens, output_tokens, images, learned_from, self._clock.now())
        with self._database.write() as connection:
            connection.execute(_LEARN, (*key.values(), *learned))
            return _read(connection, key)

    def rest(
        self,
        key: RouteKey,
        failure_class: str,
        *,
        began_at: float,
        seconds: Callable[[int], float],
    ) -> RouteRecord:
        """Rest a route that failed and return what is known of it.

        `seconds` gives the length for the number of failures in a row. A call that began before
        the running rest tells nothing new: it neither counts nor changes anything.
        """
        with self._database.write() as connection:
            before = _read(connection, key)
            now = self._clock.now()
            if before.rested_until > now and began_at < before.rested_at:
                return before
            is_stale = now - before.rested_until > FRESH_STRIKES_S
            strikes = 1 if is_stale else before.strikes + 1
            until = max(before.rested_until, now + seconds(strikes))
            connection.execute(_REST, (*key.values(), until, now, failure_class, strikes))
            return _read(connection, key)

    def end_rest(self, key: RouteKey, *, began_at: float) -> None:
        """Note that a route answered a call that began at `began_at`.

        An answer to a call that is older than the newest failure changes nothing.
        """
        with self._database.write() as connection:
            connection.execute(_END_REST, (*key.values(), began_at))


def _read(connection: Connection, key: RouteKey) -> RouteRecord:
    row = connection.execute(_READ, key.values()).fetchone()
    if row is None:
        return RouteRecord()
    window, output, images, *rest = row
    return RouteRecord(window, output, None if images is None else bool(images), *rest)
