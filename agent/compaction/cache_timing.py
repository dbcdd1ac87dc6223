"""Whether a pass that is due waits, because it would break the provider's prompt cache. Pure.

A pass costs writing anew what it keeps; it saves reading what it removes in every later request.
So it waits while the cache is warm and a larger gain is near, and never past the safe part of the
window; once the cache has expired it costs nothing and is done at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from agent.base.record import dataclass
from agent.providers.protocol import TokenUsage

REACH = 1.2
"""How far past the trigger a pass waits, as a multiple of it."""
SAFE_SHARE = 0.90
"""Part of the usable window past which nothing waits."""


class CacheState(StrEnum):
    """What is known of the provider's cache of a conversation's prefix."""

    UNKNOWN = "unknown"
    """The provider reports no cache, or a pass has replaced the prefix since."""
    WARM = "warm"
    EXPIRED = "expired"


@dataclass(frozen=True)
class CacheTerms:
    """How long a cache lasts after its last use, and what reading from it and writing to it cost
    beside plain input."""

    ttl_s: float
    read_share: float
    write_share: float


_MARKED = CacheTerms(ttl_s=300.0, read_share=0.10, write_share=1.25)
"""Terms where requests mark what is cached: writing is counted, and costs more."""
_AUTOMATIC = CacheTerms(ttl_s=300.0, read_share=0.25, write_share=1.0)


@dataclass(frozen=True)
class CacheUse:
    """What a conversation's last request read from the cache and wrote to it.

    `prompt` is all that it held. Units: real tokens; `at` is Unix epoch seconds.
    """

    prompt: int = 0
    cached: int = 0
    written: int = 0
    at: float = 0.0

    @classmethod
    def from_anchor(cls, anchor: Mapping[str, Any]) -> CacheUse:
        """Return what a stored usage anchor says; nothing when a pass or a switch cleared it."""
        if not anchor.keys() >= {"prompt", "cached", "cache_write", "at"}:
            return cls()
        prompt, cached, written = (
            int(anchor[name]) for name in ("prompt", "cached", "cache_write")
        )
        return cls(prompt, cached, written, float(anchor["at"]))

    @property
    def terms(self) -> CacheTerms:
        """The terms of a cache that counts as this one does."""
        return _MARKED if self.written else _AUTOMATIC

    def state(self, now: float) -> CacheState:
        """Return what is known of the cache at an instant."""
        if not self.cached and not self.written:
            return CacheState.UNKNOWN
        is_warm = 0 <= now - self.at < self.terms.ttl_s
        return CacheState.WARM if is_warm else CacheState.EXPIRED

    def next_usage(self, prompt: int, unchanged: int, now: float) -> TokenUsage:
        """Return what a request of `prompt` tokens would count, of which the first `unchanged`
        are as they were in the last one."""
        state = self.state(now)
        cached = min(prompt, unchanged, self.prompt) if state is CacheState.WARM else 0
        writes = state is not CacheState.UNKNOWN and self.terms.write_share > 1
        return TokenUsage(prompt, 0, cached=cached, cache_write=prompt - cached if writes else 0)


@dataclass(frozen=True)
class Situation:
    """What a decision needs, in real tokens.

    `used` is what the next request takes, `after` what it would take after a pass, `growth` what
    a request adds to the next one; `trigger` is where a pass is due, `usable` all that fits.
    """

    used: int
    after: int
    growth: int
    trigger: int
    usable: int


def may_wait(situation: Situation, use: CacheUse, now: float) -> bool:
    """Return whether a pass had better wait for a later request.

    While it waits every request reads what a pass would remove, which adds up with the square of
    what has grown since; each pass writes anew what it keeps. The mean is least where both are
    equal: until there a larger gain is near.
    """
    if use.state(now) is not CacheState.WARM or use.prompt <= 0:
        return False
    safe = min(SAFE_SHARE * situation.usable, REACH * situation.trigger)
    if situation.used + 2 * situation.growth > safe:
        return False
    if situation.used < situation.trigger:
        return True
    terms = use.terms
    grown = max(0, situation.used - situation.after)
    rewritten = situation.after * (terms.write_share - terms.read_share)
    return terms.read_share * grown**2 < 2 * rewritten * max(1, situation.growth)
