"""From settings to providers, windows and prices."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from agent.base.errors import RequestRefused, SettingsError
from agent.base.settings import LocalSettings, ModelSettings
from agent.providers.anthropic import AnthropicMessages
from agent.providers.catalog import ask_models, list_models, open_route
from agent.providers.chat_completions import ChatCompletions
from agent.providers.endpoint import Endpoint
from agent.providers.facts import ModelFacts, known_facts, listed_facts
from agent.providers.local import LocalModel
from agent.providers.prices import price_of
from agent.providers.protocol import CallWatch, Limits, TokenUsage
from agent.testing.stub_server import StubModelServer

HOSTED = ModelSettings(name="gpt-4o", base_url="https://api.openai.com/v1", api_key="k")


def test_nothing_named_is_the_embedded_model() -> None:
    provider = open_route(ModelSettings(), LocalSettings())
    assert isinstance(provider, LocalModel)
    assert provider.route == "SmolLM2-135M-Instruct at embedded"
    assert (provider.window_tokens, provider.supports_tools) == (8_192, False)
    assert provider.price(TokenUsage(1, 1)) == 0
    provider.close()


def test_the_embedded_model_can_be_named_beside_an_endpoint() -> None:
    local = LocalSettings(model_path="/models/mine.gguf", context_length=4_096)
    provider = open_route(replace(HOSTED, api_mode="local"), local)
    assert isinstance(provider, LocalModel)
    assert (provider.model, provider.window_tokens) == ("mine", 4_096)


def test_an_endpoint_is_chat_completions_with_the_models_window() -> None:
    provider = open_route(HOSTED, LocalSettings())
    assert isinstance(provider, ChatCompletions)
    assert provider.route == "gpt-4o at https://api.openai.com/v1"
    assert (provider.window_tokens, provider.supports_tools) == (128_000, True)


def test_the_anthropic_wire_knows_its_endpoint(stub: StubModelServer) -> None:
    chosen = ModelSettings(name="claude-sonnet-4-5", api_mode="anthropic_messages")
    provider = open_route(chosen, LocalSettings())
    assert isinstance(provider, AnthropicMessages)
    assert provider.route == "claude-sonnet-4-5 at https://api.anthropic.com/v1"
    assert provider.price(TokenUsage(1_000_000, 0)) is not None
    root = stub.base_url.removesuffix("/v1")
    assert list_models(replace(chosen, base_url=root, api_key="k")) == ["stub-model"]
    assert stub.requests[0].headers["anthropic-version"] == "2026-10-21"


def test_settings_win_over_the_table() -> None:
    chosen = replace(HOSTED, context_length=20_000, tool_support=False)
    provider = open_route(chosen, LocalSettings())
    assert (provider.window_tokens, provider.supports_tools) == (20_000, False)


WRONG = {
    "small window": (
        replace(HOSTED, context_length=4_095),
        "model.context_length 4095 is too small; set it to 4096 or more",
    ),
    "no name": (
        replace(HOSTED, name=""),
        (
            "model.name is not set for https://api.openai.com/v1; "
            "set it to one of the endpoint's models"
        ),
    ),
    "name only": (
        ModelSettings(name="gpt-4o"),
        (
            "model.name 'gpt-4o' is set but model.base_url is not; set model.base_url to the "
            "endpoint, such as 'https://host/v1'"
        ),
    ),
    "key only": (
        ModelSettings(api_key="k-secret"),
        (
            "model.api_key is set but model.base_url is not; set model.base_url to the "
            "endpoint, such as 'https://host/v1'"
        ),
    ),
    "mode": (
        replace(HOSTED, api_mode="telepathy"),
        (
            "model.api_mode 'telepathy' is unknown; set it to one of: "
            "anthropic_messages, chat_completions, codex_app_server, local, responses"
        ),
    ),
}


@pytest.mark.parametrize(("settings", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_settings_say_what_to_set(settings: ModelSettings, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        open_route(settings, LocalSettings())
    assert str(caught.value) == message


def test_the_embedded_window_has_the_same_floor() -> None:
    with pytest.raises(SettingsError, match="local.context_length 1000 is too small"):
        open_route(ModelSettings(), LocalSettings(context_length=1_000))


@pytest.mark.parametrize(
    ("model", "window_tokens"),
    [
        ("gpt-4o-mini-2024-07-18", 128_000),
        ("gpt-4.1-nano", 1_047_576),
        ("gpt-4-0613", 8_192),
        ("openai/gpt-5", 400_000),
        ("anthropic/claude-sonnet-4.5", 200_000),
        ("deepseek/deepseek-r1:free", 128_000),
        ("meta-llama/Llama-3.1-8B-Instruct", 131_072),
        ("Gemini-1.5-Pro-002", 2_097_152),
        ("test/model", 0),
        ("", 0),
    ],
)
def test_windows_are_known_by_the_longest_prefix(model: str, window_tokens: int) -> None:
    assert known_facts(model).window_tokens == window_tokens


def test_the_price_list_knows_windows_of_models_of_no_known_family() -> None:
    assert known_facts("sonar-pro", "https://api.perplexity.ai").window_tokens == 200_000
    assert known_facts("glm-5", "https://other.example/v1").window_tokens == 200_000
    assert known_facts("glm-5", "http://127.0.0.1:9/v1").window_tokens == 0
    assert known_facts("no-such-model", "https://other.example/v1").window_tokens == 0


def test_a_model_that_nobody_knows_gets_a_safe_window() -> None:
    unknown = ModelSettings(name="no-such-model", base_url="http://127.0.0.1:9/v1")
    provider = open_route(unknown, LocalSettings())
    assert provider.window_tokens == 128_000


@pytest.mark.parametrize(
    ("model", "takes_images"),
    [
        ("gpt-4o-mini", True),
        ("gpt-4-0613", False),
        ("gpt-4.1", True),
        ("deepseek/deepseek-chat", False),
        ("qwen/qwen3-vl-8b-instruct", True),
        ("Qwen3-32B", False),
        ("llama-3.2-11b-vision", True),
        ("llama-3.2-3b-instruct", False),
        ("claude-sonnet-4-5", None),
        ("test/model", None),
    ],
)
def test_families_that_take_no_images_are_known(model: str, takes_images: bool | None) -> None:
    assert known_facts(model).takes_images is takes_images


LISTED = {
    "openrouter": (
        {
            "id": "a/b",
            "context_length": 262_144,
            "architecture": {"modality": "text->text", "input_modalities": ["text"]},
            "top_provider": {"context_length": 131_072, "max_completion_tokens": 16_384},
        },
        ModelFacts(131_072, 16_384, takes_images=False),
    ),
    "openrouter, no top provider": (
        {
            "context_length": 8_192,
            "architecture": {"input_modalities": ["text", "image"]},
            "top_provider": {"context_length": None, "max_completion_tokens": None},
        },
        ModelFacts(8_192, 0, takes_images=True),
    ),
    "vllm": ({"id": "m", "object": "model", "max_model_len": 32_768}, ModelFacts(32_768)),
    "mistral": (
        {"id": "m", "max_context_length": 131_072, "capabilities": {"vision": False}},
        ModelFacts(131_072, takes_images=False),
    ),
    "groq": (
        {"context_window": 131_072, "max_completion_tokens": 32_768},
        ModelFacts(131_072, 32_768),
    ),
    "lm studio": (
        {"loaded_context_length": 4_096, "max_context_length": 131_072},
        ModelFacts(4_096),
    ),
    "llama.cpp": ({"meta": {"n_ctx": 8_192, "n_ctx_train": 131_072}}, ModelFacts(8_192)),
    "llama.cpp, older": ({"meta": {"n_ctx_train": 131_072}}, ModelFacts(131_072)),
    "copilot": (
        {
            "capabilities": {
                "limits": {"max_context_window_tokens": 64_000, "max_output_tokens": 4_096},
                "supports": {"vision": True},
            }
        },
        ModelFacts(64_000, 4_096, takes_images=True),
    ),
    "nothing": ({"id": "m", "object": "model"}, ModelFacts()),
    "nonsense": (
        {"context_length": -1, "max_model_len": True, "top_provider": 7, "capabilities": []},
        ModelFacts(),
    ),
}


@pytest.mark.parametrize(("entry", "facts"), LISTED.values(), ids=LISTED.keys())
def test_a_list_of_models_says_what_each_takes(entry: dict[str, Any], facts: ModelFacts) -> None:
    assert listed_facts(entry) == facts


def test_windows_come_with_the_list_of_models(stub: StubModelServer) -> None:
    stub.script([], model="other", window_tokens=9_000)
    settings = ModelSettings(base_url=stub.base_url, api_key="k")
    listed = ask_models(settings, Limits(), CallWatch())
    assert listed == {"stub-model": ModelFacts(128_000), "other": ModelFacts(9_000)}
    assert ask_models(ModelSettings(), Limits(), CallWatch()) == {}


# -- models of an endpoint ----------------------------------------------------------------------
def test_an_endpoint_lists_its_models(stub: StubModelServer) -> None:
    stub.script([], model="other")
    settings = ModelSettings(base_url=stub.base_url, api_key="k-secret")
    assert list_models(settings) == ["stub-model", "other"]
    assert stub.requests[0].headers["authorization"] == "Bearer k-secret"
    assert (stub.requests[0].method, stub.requests[0].path) == ("GET", "/v1/models")


def test_the_embedded_model_lists_nothing() -> None:
    assert list_models(ModelSettings()) == []


def test_an_endpoint_that_cannot_be_asked_says_so(stub: StubModelServer) -> None:
    settings = ModelSettings(base_url=stub.base_url.removesuffix("/v1"), api_key="k-secret")
    with pytest.raises(RequestRefused, match="no such path"):
        list_models(settings)


# -- prices -------------------------------------------------------------------------------------
USAGE = TokenUsage(prompt=1_000_000, completion=500_000)


def price(model: str, base_url: str, *own: tuple[str, float, float]) -> float | None:
    return price_of(USAGE, model, Endpoint(base_url, "k", "r"), own)


def test_own_prices_come_first() -> None:
    assert price("gpt-4o", "https://api.openai.com/v1", ("gpt-4o", 1.0, 4.0)) == 3.0
    assert price("mine", "http://127.0.0.1:1/v1", ("mine", 0.5, 0.0)) == 0.5


def test_own_prices_may_tell_what_the_cache_costs() -> None:
    own = (("mine", 2.0, 4.0, 0.5, 3.0),)
    usage = TokenUsage(1_000_000, 500_000, cached=600_000, cache_write=200_000)
    assert price_of(usage, "mine", Endpoint("https://h/v1", "k", "r"), own) == pytest.approx(3.3)


def test_listed_prices_are_found_by_host_and_model() -> None:
    listed = price("gpt-4o", "https://api.openai.com/v1", ("other", 1.0, 4.0))
    assert listed is not None
    assert listed > 0


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        (TokenUsage(1_000, 0), 0.003),
        (TokenUsage(1_000, 0, cached=900), 0.00057),
        (TokenUsage(1_000, 0, cache_write=900), 0.003675),
        (TokenUsage(1_000, 100, cached=500, cache_write=400), 0.00345),
    ],
    ids=["plain", "read", "written", "all"],
)
def test_tokens_read_from_and_written_to_a_cache_have_their_own_price(
    usage: TokenUsage, dollars: float
) -> None:
    endpoint = Endpoint("https://api.anthropic.com/v1", "k", "r")
    assert price_of(usage, "claude-sonnet-4-5", endpoint, ()) == pytest.approx(dollars)


@pytest.mark.parametrize(
    ("model", "base_url"),
    [
        ("no-such-model", "https://api.openai.com/v1"),
        ("gpt-4o", "https://llm.example.invalid/v1"),
        ("gpt-4o", "http://localhost:8000/v1"),
    ],
)
def test_an_unknown_price_is_none_and_never_nothing(model: str, base_url: str) -> None:
    assert price(model, base_url) is None


# -- light --------------------------------------------------------------------------------------
def test_opening_a_route_imports_nothing_heavy() -> None:
    heavy = "httpx2 httpcore2 tenacity genai_prices xllamacpp ssl urllib.request email asyncio"
    script = (
        "import sys\n"
        "from agent.base.settings import LocalSettings, ModelSettings\n"
        "from agent.providers.catalog import open_route\n"
        "import agent.auxiliary_client\n"
        "open_route(ModelSettings(), LocalSettings()).close()\n"
        "hosted = ModelSettings(name='gpt-4o', base_url='https://h/v1')\n"
        "open_route(hosted, LocalSettings()).close()\n"
        f"print([name for name in {heavy.split()!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
