"""Every dialect in which servers count tokens, brought to `TokenUsage`. Pure.

Counts that are null, negative, fractional or absurd are taken as not given. Whether cached tokens
stand inside or outside of the input is the dialect's rule, unless its own total says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.base.record import dataclass
from agent.providers.protocol import TokenUsage

_MOST_TOKENS = 1_000_000_000
_Path = tuple[str, ...]


@dataclass(frozen=True)
class _Dialect:
    """Where a dialect writes its counts; of several places the first with a count is taken."""

    prompt: str
    completion: str
    cached: tuple[_Path, ...] = ()
    cache_write: tuple[_Path, ...] = ()
    reasoning: tuple[_Path, ...] = ()
    total: str = ""
    is_cache_outside: bool = False


_CHAT = _Dialect(
    prompt="prompt_tokens",
    completion="completion_tokens",
    cached=(
        ("prompt_tokens_details", "cached_tokens"),
        ("prompt_cache_hit_tokens",),
        ("cached_tokens",),
        ("cache_read_input_tokens",),
    ),
    cache_write=(
        ("prompt_tokens_details", "cache_write_tokens"),
        ("prompt_tokens_details", "cache_creation_tokens"),
        ("cache_creation_input_tokens",),
    ),
    reasoning=(("completion_tokens_details", "reasoning_tokens"), ("reasoning_tokens",)),
    total="total_tokens",
)
_RESPONSES = _Dialect(
    prompt="input_tokens",
    completion="output_tokens",
    cached=(("input_tokens_details", "cached_tokens"), ("cached_input_tokens",)),
    cache_write=(("input_tokens_details", "cache_write_tokens"),),
    reasoning=(
        ("output_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "thinking_tokens"),
        ("reasoning_output_tokens",),
    ),
    total="total_tokens",
)
_ANTHROPIC = _Dialect(
    prompt="input_tokens",
    completion="output_tokens",
    cached=(("cache_read_input_tokens",),),
    cache_write=(("cache_creation_input_tokens",),),
    reasoning=(("output_tokens_details", "thinking_tokens"),),
    is_cache_outside=True,
)
_CODEX = _Dialect(
    prompt="inputTokens",
    completion="outputTokens",
    cached=(("cachedInputTokens",),),
    reasoning=(("reasoningOutputTokens",),),
    total="totalTokens",
)
_TIMINGS = _Dialect(
    prompt="prompt_n", completion="predicted_n", cached=(("cache_n",),), is_cache_outside=True
)

_BY_SIGN = (
    ("prompt_tokens", _CHAT),
    ("completion_tokens", _CHAT),
    ("cache_read_input_tokens", _ANTHROPIC),
    ("cache_creation_input_tokens", _ANTHROPIC),
    ("input_tokens", _RESPONSES),
    ("output_tokens", _RESPONSES),
    ("inputTokens", _CODEX),
    ("predicted_n", _TIMINGS),
)
"""The first key that is there tells the dialect."""


def read_usage(usage: Any) -> TokenUsage | None:
    """Return the provider's count of one call, or None when it gave none that can be read.

    Takes the `usage` object of any wire, the `timings` of llama.cpp, or one breakdown of the
    Codex app-server (`last` of `tokenUsage`).
    """
    if not isinstance(usage, Mapping):
        return None
    dialect = next((dialect for sign, dialect in _BY_SIGN if sign in usage), None)
    if dialect is None:
        return None
    prompt = _count(usage, (dialect.prompt,))
    completion = _count(usage, (dialect.completion,))
    total = _count(usage, (dialect.total,))
    cached = _first(usage, dialect.cached)
    write = _first(usage, dialect.cache_write)
    reasoning = _first(usage, dialect.reasoning)
    if reasoning > completion or (reasoning and total == prompt + completion + reasoning):
        completion += reasoning
    if not prompt and total > completion:
        prompt = total - completion
    elif (
        dialect.is_cache_outside
        or cached + write > prompt
        or (cached + write and total == prompt + cached + write + completion)
    ):
        prompt += cached + write
    prompt = max(prompt, cached + write)
    if not prompt and not completion:
        return None
    return TokenUsage(prompt, completion, cached, reasoning, write)


def read_turn_usage(update: Any, before: TokenUsage | None) -> TokenUsage | None:
    """Return what a turn has used so far, from a Codex `tokenUsage` (`total` and `last`).

    `before` is the thread's total when the turn began, as `read_usage` read it. The counts are
    the turn's, over all of its calls; `in_window` is what the last of them held.
    """
    if not isinstance(update, Mapping):
        return None
    total, last = read_usage(update.get("total")), read_usage(update.get("last"))
    if total is None:
        return last
    start = before or TokenUsage(0, 0)
    return TokenUsage(
        prompt=max(total.prompt - start.prompt, 0),
        completion=max(total.completion - start.completion, 0),
        cached=max(total.cached - start.cached, 0),
        reasoning=max(total.reasoning - start.reasoning, 0),
        cache_write=max(total.cache_write - start.cache_write, 0),
        in_window=last.prompt if last else 0,
    )


def later_usage(earlier: Mapping[str, Any], later: Any) -> dict[str, Any]:
    """Return two raw counts of one answer as one: they are cumulative, so the larger one holds.

    A stream that reports its input at the start and its output at the end needs this.
    """
    merged = dict(earlier)
    for name, value in later.items() if isinstance(later, Mapping) else ():
        before = merged.get(name)
        if isinstance(value, Mapping):
            merged[name] = later_usage(before if isinstance(before, Mapping) else {}, value)
        elif _is_count(value):
            merged[name] = max(value, before) if _is_count(before) else value
        elif value is not None:
            merged[name] = value
    return merged


def count_of(said: Mapping[str, Any], name: str) -> int:
    """Return a count of that name, 0 when none was given that can be believed."""
    return _count(said, (name,))


def _first(usage: Mapping[str, Any], paths: tuple[_Path, ...]) -> int:
    return next((count for path in paths if (count := _count(usage, path))), 0)


def _count(usage: Mapping[str, Any], path: _Path) -> int:
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return int(value) if _is_count(value) else 0


def _is_count(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= _MOST_TOKENS and value == int(value)
