"""Variables of other programs: a key in one of them names its endpoint, and its wire."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.base.settings import ModelSettings
from agent.settings import load_settings

OPENAI = "https://api.openai.com/v1"
OPENROUTER = "https://openrouter.ai/api/v1"
ANTHROPIC = "https://api.anthropic.com/v1"


def _load(home: Path, file: str, environ: dict[str, str]) -> ModelSettings:
    (home / "config.yaml").write_text(file, "utf-8")
    return load_settings(home=home, environ=environ).model


@pytest.mark.parametrize(
    ("environ", "file", "key", "base_url"),
    [
        ({"OPENAI_API_KEY": "a"}, "", "a", OPENAI),
        ({"OPENROUTER_API_KEY": "r"}, "", "r", OPENROUTER),
        ({"OPENAI_API_KEY": "a", "OPENROUTER_API_KEY": "r"}, "", "a", OPENAI),
        (
            {"OPENAI_API_KEY": "a", "OPENROUTER_API_KEY": "r"},
            f"model: {{base_url: '{OPENROUTER}'}}",
            "r",
            OPENROUTER,
        ),
        ({"OPENAI_API_KEY": "a", "OPENAI_BASE_URL": "http://h/v1"}, "", "a", "http://h/v1"),
        ({"OPENAI_BASE_URL": "http://h/v1"}, "", "", "http://h/v1"),
        ({"OPENROUTER_API_KEY": "r"}, "model: {base_url: http://h/v1}", "r", "http://h/v1"),
        ({"OPENAI_API_KEY": "a"}, "model: {api_key: f}", "a", OPENAI),
        ({"OPENAI_API_KEY": "a", "HERMES_MODEL__API_KEY": "h"}, "", "h", OPENAI),
        ({"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}, "", "", ""),
    ],
)
def test_variables_of_other_programs_give_key_and_endpoint(
    tmp_path: Path, environ: dict[str, str], file: str, key: str, base_url: str
) -> None:
    model = _load(tmp_path, file, environ)
    assert (model.api_key, model.base_url) == (key, base_url)


BOTH_KEYS = {"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "c"}


@pytest.mark.parametrize(
    ("environ", "file", "key", "base_url", "mode"),
    [
        ({"ANTHROPIC_API_KEY": "c"}, "", "c", ANTHROPIC, "anthropic_messages"),
        (BOTH_KEYS, "", "a", OPENAI, "chat_completions"),
        (BOTH_KEYS, "model: {api_mode: anthropic_messages}", "c", ANTHROPIC, "anthropic_messages"),
        (
            BOTH_KEYS,
            "model: {base_url: 'https://api.anthropic.com'}",
            "c",
            "https://api.anthropic.com",
            "anthropic_messages",
        ),
        (
            {"ANTHROPIC_API_KEY": "c"},
            "model: {api_mode: chat_completions}",
            "c",
            ANTHROPIC,
            "chat_completions",
        ),
        (
            {"ANTHROPIC_API_KEY": "c"},
            "model: {base_url: http://h}",
            "c",
            "http://h",
            "chat_completions",
        ),
    ],
)
def test_the_key_of_anthropic_chooses_its_wire_where_none_is_set(
    tmp_path: Path, environ: dict[str, str], file: str, key: str, base_url: str, mode: str
) -> None:
    model = _load(tmp_path, file, environ)
    assert (model.api_key, model.base_url, model.api_mode) == (key, base_url, mode)
