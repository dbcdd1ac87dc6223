"""What a model can take: from the names of well-known families, from the bundled price list, and
from what an endpoint says of it in its list of models. Sizes of families: `windows.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.base.record import dataclass
from agent.providers.windows import family_of, family_window

_LARGEST_TOKENS = 100_000_000
_Path = tuple[str, ...]

_IMAGES = {
    "codestral": False,
    "command-r": False,
    "deepseek": False,
    "gemma-2": False,
    "glm-4": False,
    "glm-4v": True,
    "glm-4.1v": True,
    "glm-4.5v": True,
    "glm-4.6v": True,
    "gpt-3.5": False,
    "gpt-4": False,
    "gpt-4-turbo": True,
    "gpt-4-vision": True,
    "gpt-4.": True,
    "gpt-4o": True,
    "gpt-oss": False,
    "kimi-k2": False,
    "kimi-k2.": True,
    "llama-3": False,
    "llama-3.2": True,
    "llama-3.2-1b": False,
    "llama-3.2-3b": False,
    "minimax-m": False,
    "mixtral": False,
    "o1-mini": False,
    "o1-preview": False,
    "o3-mini": False,
    "qwen2.5": False,
    "qwen2.5-vl": True,
    "qwen2.5-omni": True,
    "qwen3": False,
    "qwen3.": True,
    "qwen3-omni": True,
    "qwen3-vl": True,
    "smollm2": False,
}
"""Whether families take images; one that is not here is taken to."""

_LISTED_WINDOW: tuple[_Path, ...] = (
    ("loaded_context_length",),
    ("top_provider", "context_length"),
    ("context_length",),
    ("max_model_len",),
    ("max_context_length",),
    ("context_window",),
    ("capabilities", "limits", "max_context_window_tokens"),
    ("meta", "n_ctx"),
    ("n_ctx",),
    ("max_input_tokens",),
    ("meta", "n_ctx_train"),
)
_LISTED_OUTPUT: tuple[_Path, ...] = (
    ("top_provider", "max_completion_tokens"),
    ("capabilities", "limits", "max_output_tokens"),
    ("max_completion_tokens",),
    ("max_output_tokens",),
)
_LISTED_INPUTS: tuple[_Path, ...] = (
    ("architecture", "input_modalities"),
    ("input_modalities",),
    ("modalities", "input"),
)
_LISTED_VISION: tuple[_Path, ...] = (
    ("capabilities", "vision"),
    ("capabilities", "supports", "vision"),
    ("supports_vision",),
)
"""Where endpoints say it in a list of models; of several places the first that holds it counts."""


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a model; 0 and None are unknown."""

    window_tokens: int = 0
    output_tokens: int = 0
    takes_images: bool | None = None


def known_facts(model: str, base_url: str = "") -> ModelFacts:
    """Return what is known of a model by its name; nothing is asked.

    The price list, which takes long to load, is read only for a hosted model of no known family.
    """
    window = family_window(model)
    if not window and base_url and not is_own_machine(base_url):
        window = price_list_window(model, base_url)
    return ModelFacts(window, takes_images=family_of(model, _IMAGES))


def listed_facts(entry: Mapping[str, Any]) -> ModelFacts:
    """Return what an entry of an endpoint's list of models says."""
    inputs = next(
        (found for path in _LISTED_INPUTS if isinstance(found := _at(entry, path), list)), None
    )
    vision = next(
        (found for path in _LISTED_VISION if isinstance(found := _at(entry, path), bool)), None
    )
    return ModelFacts(
        _first_size(entry, _LISTED_WINDOW),
        _first_size(entry, _LISTED_OUTPUT),
        "image" in inputs if inputs is not None else vision,
    )


def is_own_machine(base_url: str) -> bool:
    """Return whether an endpoint is this machine: its models are whoever's started it."""
    return any(name in base_url for name in ("//localhost", "//127.", "//[::1]"))


def price_list_window(model: str, base_url: str) -> int:
    """Return the window that the bundled price list names, 0 when it names none."""
    from genai_prices.data_snapshot import get_snapshot

    for url in (base_url, None):
        try:
            _provider, found = get_snapshot().find_provider_model(model, None, None, url)
        except LookupError:
            continue
        if found.context_window:
            return found.context_window
    return 0


def _at(entry: Mapping[str, Any], path: _Path) -> Any:
    value: Any = entry
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _first_size(entry: Mapping[str, Any], paths: tuple[_Path, ...]) -> int:
    for path in paths:
        value = _at(entry, path)
        if type(value) is int and 0 < value <= _LARGEST_TOKENS:
            return value
    return 0
