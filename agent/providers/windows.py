"""Windows of well-known model families, for when the settings name none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

SMALLEST_WINDOW_TOKENS = 4_096
UNKNOWN_WINDOW_TOKENS = 128_000

_Fact = TypeVar("_Fact")

_BY_PREFIX = {
    "claude-": 200_000,
    "codestral": 256_000,
    "command-a": 256_000,
    "command-r": 128_000,
    "deepseek": 128_000,
    "gemini-": 1_048_576,
    "gemini-1.5-pro": 2_097_152,
    "gemma-2": 8_192,
    "gemma-3": 131_072,
    "glm-4": 128_000,
    "glm-4.6": 200_000,
    "gpt-3.5": 16_385,
    "gpt-4": 8_192,
    "gpt-4-turbo": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4o": 128_000,
    "gpt-5": 400_000,
    "gpt-oss": 131_072,
    "grok-3": 131_072,
    "grok-4": 256_000,
    "kimi-k2": 131_072,
    "llama-3": 8_192,
    "llama-3.1": 131_072,
    "llama-3.2": 131_072,
    "llama-3.3": 131_072,
    "minimax-m": 196_608,
    "mistral-large": 128_000,
    "mistral-small": 128_000,
    "mixtral": 32_768,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o3": 200_000,
    "o4-mini": 200_000,
    "qwen2.5": 32_768,
    "qwen3": 32_768,
    "qwen3-coder": 262_144,
    "smollm2": 8_192,
}


def family_of(model: str, table: Mapping[str, _Fact]) -> _Fact | None:
    """Return what a table of prefixes says of a model: the longest that its name begins with.

    A vendor before a slash and a variant after a colon do not count.
    """
    name = model.rpartition("/")[2].partition(":")[0].lower()
    prefixes = [prefix for prefix in table if name.startswith(prefix)]
    return table[max(prefixes, key=len)] if prefixes else None


def family_window(model: str) -> int:
    """Return the window of a model's family in tokens, 0 when it is unknown."""
    return family_of(model, _BY_PREFIX) or 0
