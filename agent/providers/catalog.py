"""From settings to a provider: which wire, which window. Touches no network until a call.

A new wire is one line in `_WIRES`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agent.base.errors import SettingsError
from agent.base.later import later
from agent.base.settings import LocalSettings, ModelSettings
from agent.providers.anthropic import HEADERS, AnthropicMessages, versioned_url
from agent.providers.call import Call
from agent.providers.chat_completions import ChatCompletions
from agent.providers.endpoint import Endpoint, bare_url
from agent.providers.facts import ModelFacts, known_facts, listed_facts
from agent.providers.failures import fault_of_answer, read_complaint, unreadable_answer
from agent.providers.http_model import HttpModel
from agent.providers.local import LocalModel
from agent.providers.protocol import CallWatch, Limits, Provider
from agent.providers.responses import Responses
from agent.providers.text import load_json
from agent.providers.transport import Transport
from agent.providers.windows import SMALLEST_WINDOW_TOKENS, UNKNOWN_WINDOW_TOKENS

if TYPE_CHECKING:
    from agent.providers import codex_app_server
else:
    [codex_app_server] = later("agent.providers", "codex_app_server")

_ANTHROPIC = "anthropic_messages"
_CODEX = "codex_app_server"
_LISTING_LIMITS = Limits(connect_s=5.0, first_byte_s=10.0, idle_s=10.0, total_s=20.0, retries=0)


def open_route(model: ModelSettings, local: LocalSettings) -> Provider:
    """Return the provider that the settings name: the embedded model when they name nothing.

    Raises: SettingsError that names the key, the value and what to set.
    """
    mode = "local" if _names_nothing(model) else model.api_mode
    if mode not in _WIRES:
        raise SettingsError(
            f"model.api_mode {mode!r} is unknown; set it to one of: {', '.join(sorted(_WIRES))}"
        )
    return _WIRES[mode](model, local)


def list_models(model: ModelSettings) -> list[str]:
    """Return the ids of the models that the endpoint offers, in its order; none when embedded.

    Raises: ProviderError when the endpoint cannot be asked.
    """
    return list(ask_models(model, _LISTING_LIMITS, CallWatch()))


def ask_models(model: ModelSettings, limits: Limits, watch: CallWatch) -> dict[str, ModelFacts]:
    """Return the models that the endpoint offers and what it says of each, in its order.

    Raises: ProviderError when the endpoint cannot be asked; CallCancelled.
    """
    if _names_nothing(model) or model.api_mode in ("local", _CODEX):
        return {}
    model = _with_endpoint(model)
    _require_endpoint(model)
    headers = HEADERS if model.api_mode == _ANTHROPIC else ()
    endpoint = Endpoint(model.base_url, model.api_key, bare_url(model.base_url), headers)
    transport = Transport(endpoint)
    try:
        with (
            Call(limits, watch, endpoint.route) as call,
            transport.send(call, "/models", None, accept="application/json") as incoming,
        ):
            body = incoming.read_whole()
            if not incoming.ok:
                raise fault_of_answer(
                    incoming.status,
                    read_complaint(body),
                    headers=incoming.headers,
                    route=endpoint.route,
                    key=endpoint.key,
                )
    finally:
        transport.close()
    return _listed(body, endpoint)


def _listed(body: bytes, endpoint: Endpoint) -> dict[str, ModelFacts]:
    try:
        listing = load_json(body)
    except ValueError:
        listing = None
    entries = listing.get("data") if isinstance(listing, dict) else listing
    if not isinstance(entries, list):
        shown = body[:200].decode("utf-8", "replace")
        raise unreadable_answer(shown, route=endpoint.route, key=endpoint.key)
    return {
        str(entry["id"]): listed_facts(entry)
        for entry in entries
        if isinstance(entry, dict) and "id" in entry
    }


def _names_nothing(model: ModelSettings) -> bool:
    named = model.base_url or model.api_key or model.name
    return not named and model.api_mode != _CODEX


def _require_endpoint(model: ModelSettings) -> None:
    if not model.base_url:
        key = "model.name" if model.name else "model.api_key"
        shown = f" {model.name!r}" if model.name else ""
        raise SettingsError(
            f"{key}{shown} is set but model.base_url is not; set model.base_url to the endpoint, "
            "such as 'https://host/v1'"
        )


def _with_endpoint(model: ModelSettings) -> ModelSettings:
    """Return the settings with the address that the Anthropic wire needs."""
    if model.api_mode != _ANTHROPIC:
        return model
    return dataclasses.replace(model, base_url=versioned_url(model.base_url))


def _open_hosted(wire: type[HttpModel], model: ModelSettings, **own: Any) -> Provider:
    _require_endpoint(model)
    if not model.name:
        raise SettingsError(
            f"model.name is not set for {bare_url(model.base_url)}; "
            "set it to one of the endpoint's models"
        )
    facts = known_facts(model.name, model.base_url)
    window_tokens = model.context_length or facts.window_tokens or UNKNOWN_WINDOW_TOKENS
    if window_tokens < SMALLEST_WINDOW_TOKENS:
        raise SettingsError(
            f"model.context_length {window_tokens} is too small; "
            f"set it to {SMALLEST_WINDOW_TOKENS} or more"
        )
    return wire(
        base_url=model.base_url,
        api_key=model.api_key,
        model=model.name,
        window_tokens=window_tokens,
        supports_tools=model.tool_support,
        prices=model.prices,
        **own,
    )


def _open_chat_completions(model: ModelSettings, _local: LocalSettings) -> Provider:
    return _open_hosted(ChatCompletions, model)


def _open_responses(model: ModelSettings, _local: LocalSettings) -> Provider:
    return _open_hosted(Responses, model)


def _open_anthropic(model: ModelSettings, _local: LocalSettings) -> Provider:
    return _open_hosted(
        AnthropicMessages, _with_endpoint(model), thinking_tokens=model.thinking_tokens
    )


def _open_codex(model: ModelSettings, _local: LocalSettings) -> Provider:
    window_tokens = model.context_length or UNKNOWN_WINDOW_TOKENS
    return codex_app_server.CodexAppServer(
        command=model.command, model=model.name, window_tokens=window_tokens
    )


def _open_local(_model: ModelSettings, local: LocalSettings) -> Provider:
    return LocalModel(local)


_WIRES: dict[str, Callable[[ModelSettings, LocalSettings], Provider]] = {
    "chat_completions": _open_chat_completions,
    "responses": _open_responses,
    _ANTHROPIC: _open_anthropic,
    _CODEX: _open_codex,
    "local": _open_local,
}
