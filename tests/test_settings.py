"""Layers, limits and the settings file, each error as a person reads it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from agent import settings as subject
from agent.base.errors import SettingsError
from agent.base.settings import ModelSettings, RouteSettings, Settings, ToolSettings
from agent.settings import (
    get_value,
    key_names,
    load_settings,
    needs_model_name,
    redact_value,
    set_value,
)


def _load(
    home: Path,
    file: str | None = None,
    environ: dict[str, str] | None = None,
    overrides: dict[str, Any] | None = None,
) -> Settings:
    if file is not None:
        (home / "config.yaml").write_text(file, "utf-8")
    return load_settings(overrides, home=home, environ=environ or {})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "settings"
    folder.mkdir()
    return folder


# -- layers ---------------------------------------------------------------------------------------


def test_with_nothing_set_the_defaults_are_in_force(home: Path) -> None:
    assert _load(home) == Settings()
    assert list(home.iterdir()) == []


def test_each_layer_wins_over_the_one_below(home: Path) -> None:
    file = "model: {name: f, base_url: f}\ntools: {timeout_seconds: 1, approval: auto}\n"
    environ = {"HERMES_MODEL__NAME": "e", "HERMES_TOOLS__TIMEOUT_SECONDS": "2"}
    loaded = _load(home, file, environ, {"model.name": "c", "tools.max_iterations": 7})
    assert loaded == Settings(
        model=ModelSettings(name="c", base_url="f"),
        tools=ToolSettings(timeout_seconds=2.0, approval="auto", max_iterations=7),
    )


def test_overrides_may_be_nested_and_none_is_not_given(home: Path) -> None:
    loaded = _load(home, overrides={"model": {"name": "a", "base_url": None}, "tools": {}})
    assert loaded == Settings(model=ModelSettings(name="a"))


def test_the_home_folder_and_the_environment_are_those_of_the_process(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    (home / "config.yaml").write_text("local: {threads: 2}\n", "utf-8")
    monkeypatch.setenv("HERMES_HOME", str(home))
    monkeypatch.setenv("HERMES_LOCAL__CONTEXT_LENGTH", "4096")
    loaded = load_settings().local
    assert (loaded.threads, loaded.context_length) == (2, 4_096)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("model.name", "4.10", "4.10"),
        ("tools.approval", "off", "off"),
        ("compression.enabled", "off", False),
        ("context.recall", "yes", True),
        ("tools.timeout_seconds", "0.5", 0.5),
        ("tools.max_iterations", "12", 12),
        ("tools.allowed_paths", "[/srv/a, '/srv/b c']", ("/srv/a", "/srv/b c")),
        ("model.prices", '[["m", 1, 2.5]]', (("m", 1.0, 2.5),)),
        ("model.prices", '[["m", 1, 2.5, 0.1, 2]]', (("m", 1.0, 2.5, 0.1, 2.0),)),
        (
            "model.fallbacks",
            "[{name: 4.10, base_url: http://h/v1, context_length: 8192}, {api_mode: local}]",
            (
                RouteSettings(name="4.10", base_url="http://h/v1", context_length=8_192),
                RouteSettings(api_mode="local"),
            ),
        ),
    ],
)
def test_a_value_means_the_same_in_file_environment_and_command(
    home: Path, key: str, text: str, value: Any
) -> None:
    section, _, name = key.partition(".")
    variable = f"HERMES_{section}__{name}".upper()
    written, by_hand = home / "written", home / "by_hand"
    by_hand.mkdir()
    assert set_value(key, text, home=written) == value
    assert get_value(_load(written), key) == value
    assert get_value(_load(by_hand, f"{section}:\n  {name}: {text}\n"), key) == value
    assert get_value(_load(home, environ={variable: text}), key) == value


@pytest.mark.parametrize(
    "file",
    ["", "\n# nothing yet\n", "~\n", "---\n", "model:\n", "model:\n  name:\n", "model: {}\n"],
)
def test_a_file_without_a_value_sets_nothing(home: Path, file: str) -> None:
    assert _load(home, file) == Settings()


def test_variables_that_only_begin_alike_are_left_alone(home: Path) -> None:
    environ = {"HERMES_HOME": "/x", "HERMES_SOAK": "1", "MODEL__NAME": "m", "HERMES": "1"}
    assert _load(home, environ=environ) == Settings()


# -- errors ---------------------------------------------------------------------------------------

WRONG = {
    "unknown key in the file": (
        {"file": "model:\n  name: a\n  base_ulr: b\n"},
        (
            "unknown settings key 'model.base_ulr' ({home}/config.yaml line 3); did you mean "
            "'model.base_url'?"
        ),
    ),
    "unknown empty key in the file": (
        {"file": "modell:\n"},
        "unknown settings key 'modell' ({home}/config.yaml line 1); did you mean 'model.name'?",
    ),
    "unknown key in the environment": (
        {"environ": {"HERMES_COMPRESION__THRESHOLD": "0.5"}},
        (
            "unknown settings key 'compresion.threshold' (environment variable "
            "HERMES_COMPRESION__THRESHOLD); did you mean 'compression.threshold'?"
        ),
    ),
    "unknown key on the command line": (
        {"overrides": {"zzz": 1}},
        "unknown settings key 'zzz' (command line); known sections: model, compression, ",
    ),
    "a section in the environment": (
        {"environ": {"HERMES_MODEL": "m"}},
        (
            "'model' (environment variable HERMES_MODEL) is a section; set a key in it, such as "
            "'model.name'"
        ),
    ),
    "a section with a value": (
        {"file": "compression: 0.5\n"},
        (
            "'compression' ({home}/config.yaml line 1) is a section; set a key in it, such as "
            "'compression.enabled'"
        ),
    ),
    "out of range": (
        {"file": "compression: {threshold: 9}\n"},
        (
            "compression.threshold '9' ({home}/config.yaml line 1) is out of range; set it to 0.05 "
            "to 0.85"
        ),
    ),
    "below the only limit": (
        {"environ": {"HERMES_TOOLS__TIMEOUT_SECONDS": "-1"}},
        (
            "tools.timeout_seconds '-1' (environment variable HERMES_TOOLS__TIMEOUT_SECONDS) is "
            "out of range; set it to 0 or more"
        ),
    ),
    "not finite": (
        {"overrides": {"tools.timeout_seconds": float("inf")}},
        "tools.timeout_seconds inf (command line) is out of range; set it to 0 or more",
    ),
    "not a number at all": (
        {"overrides": {"tools.timeout_seconds": float("nan")}},
        "tools.timeout_seconds nan (command line) is out of range; set it to 0 or more",
    ),
    "a word for a number": (
        {"overrides": {"tools.max_iterations": "many"}},
        "tools.max_iterations 'many' (command line) is not a whole number",
    ),
    "a list for a text": (
        {"file": "model:\n  name: [a]\n"},
        "model.name ['a'] ({home}/config.yaml line 2) is not text",
    ),
    "a text for a list": (
        {"file": "tools:\n  allowed_paths: /srv\n"},
        ("tools.allowed_paths '/srv' ({home}/config.yaml line 2) is not a list of what it holds"),
    ),
    "a broken list in the environment": (
        {"environ": {"HERMES_TOOLS__ALLOWED_PATHS": "[/srv"}},
        "tools.allowed_paths '[/srv' is not a list in YAML or JSON form",
    ),
    "an unknown choice": (
        {"overrides": {"tools.approval": "never"}},
        "tools.approval 'never' (command line) is unknown; set it to one of: ask, auto, off",
    ),
    "a list at the top": (
        {"file": "- a\n"},
        (
            "'{home}/config.yaml' line 1 holds a list; write sections, such as 'model:', with "
            "their keys below"
        ),
    ),
    "a text at the top": (
        {"file": "\nname\n"},
        (
            "'{home}/config.yaml' line 2 holds plain text; write sections, such as 'model:', with "
            "their keys below"
        ),
    ),
    "a key that is set twice": (
        {"file": "model:\n  name: a\n  base_url: b\n  name: c\n"},
        "'{home}/config.yaml' line 4 sets model.name, which line 2 sets already; keep one of them",
    ),
    "a section that stands twice": (
        {"file": "model: {name: a}\ntools: {}\nmodel: {base_url: b}\n"},
        "'{home}/config.yaml' line 3 sets model, which line 1 sets already; keep one of them",
    ),
    "a field of a route that is set twice": (
        {"file": "model:\n  fallbacks:\n    - name: a\n      name: b\n"},
        (
            "'{home}/config.yaml' line 4 sets model.fallbacks.name, which line 3 sets already; "
            "keep "
            "one of them"
        ),
    ),
    "not YAML": (
        {"file": "model:\n  name: [a\ntools: b\n"},
        "'{home}/config.yaml' line 3 is not YAML: expected ',' or ']', but got ':'",
    ),
    "routes that are no list": (
        {"file": "model:\n  fallbacks: {name: a}\n"},
        (
            "model.fallbacks {{'name': 'a'}} ({home}/config.yaml line 2) is not a list of "
            "routes, such "
            "as [{{name: a-model}}]"
        ),
    ),
    "a route that is a name": (
        {"file": "model:\n  fallbacks: [a]\n"},
        (
            "model.fallbacks[0] 'a' ({home}/config.yaml line 2) is not a route; set of it: name, "
            "base_url, api_key, api_mode, context_length"
        ),
    ),
    "a key that no route has": (
        {"file": "model:\n  fallbacks: [{name: a}, {name: b, contxt_length: 5}]\n"},
        (
            "model.fallbacks[1].contxt_length '5' ({home}/config.yaml line 2) is no key of a "
            "route; "
            "did you mean 'context_length'?"
        ),
    ),
    "a key far from any of a route": (
        {"file": "model:\n  fallbacks: [{zzz: c}]\n"},
        (
            "model.fallbacks[0].zzz 'c' ({home}/config.yaml line 2) is no key of a route; set "
            "of it: "
            "name, base_url, api_key, api_mode, context_length"
        ),
    ),
    "a route that leads nowhere": (
        {"file": "model:\n  fallbacks: [{api_key: sk-secret-secret-key}]\n"},
        (
            "model.fallbacks[0] {{'api_key': '***-key'}} ({home}/config.yaml line 2) names no "
            "model; "
            "set name, base_url or api_mode of it"
        ),
    ),
    "a small window of a route": (
        {"overrides": {"model.fallbacks": [{"name": "a", "context_length": 100}]}},
        (
            "model.fallbacks[0].context_length 100 (command line) is out of range; set it to "
            "4096 or "
            "more"
        ),
    ),
    "a wire of a route": (
        {"overrides": {"model.fallbacks": [{"name": "a", "api_mode": "telepathy"}]}},
        (
            "model.fallbacks[0].api_mode 'telepathy' (command line) is unknown; set it to one of: "
            "chat_completions, "
        ),
    ),
    "two documents": (
        {"file": "model: {}\n---\nmodel: {}\n"},
        "'{home}/config.yaml' line 2 is not YAML: but found another document",
    ),
    "a value inside itself": (
        {"file": "model: &a\n  prices: [*a]\n"},
        "'{home}/config.yaml' line 1 is not YAML: found unconstructable recursive node",
    ),
    "a control character": (
        {"file": "model: {name: a\x00}\n"},
        "'{home}/config.yaml' is not YAML: unacceptable character #x0000: special characters",
    ),
}


@pytest.mark.parametrize(("layers", "message"), WRONG.values(), ids=WRONG)
def test_an_error_names_key_value_and_origin_in_one_line(
    home: Path, layers: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        _load(home, **layers)
    said = str(caught.value)
    assert said.startswith(message.format(home=home))
    assert "\n" not in said


def test_a_wrong_key_is_never_shown_whole(home: Path) -> None:
    secret = ["sk-1234567890abcdef-1234567890abcdef"]
    with pytest.raises(SettingsError) as caught:
        _load(home, overrides={"model.api_key": secret})
    assert secret[0] not in str(caught.value)


def test_a_wrong_value_that_a_higher_layer_replaces_does_no_harm(home: Path) -> None:
    loaded = _load(home, "local: {threads: many}\n", overrides={"local.threads": 3})
    assert loaded.local.threads == 3


def test_a_file_in_another_encoding_is_told(home: Path) -> None:
    (home / "config.yaml").write_bytes(b"model: {name: \xff}\n")
    with pytest.raises(SettingsError, match="is not UTF-8 at byte 14; save it as UTF-8"):
        load_settings(home=home, environ={})


def test_a_file_that_is_a_folder_is_told(home: Path) -> None:
    (home / "config.yaml").mkdir()
    with pytest.raises(SettingsError, match=r"cannot read '.*config.yaml': Is a directory"):
        load_settings(home=home, environ={})


# -- keys and values ------------------------------------------------------------------------------


def test_every_key_of_the_records_is_a_key_and_every_default_is_allowed(home: Path) -> None:
    defaults = {key: get_value(Settings(), key) for key in key_names()}
    assert _load(home, overrides=defaults) == Settings()
    assert {"model.name", "auxiliary.compression.model", "database.url"} <= defaults.keys()


def test_every_limit_and_choice_is_of_a_key() -> None:
    assert {*subject._RANGES, *subject._CHOICES} <= set(key_names())


@pytest.mark.parametrize("key", ["model.nam", "model", ""])
def test_an_unknown_key_can_neither_be_read_nor_written(home: Path, key: str) -> None:
    with pytest.raises(SettingsError):
        get_value(Settings(), key)
    with pytest.raises(SettingsError):
        set_value(key, "1", home=home)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (ModelSettings(), False),
        (ModelSettings(base_url="http://h/v1"), True),
        (ModelSettings(api_key="k"), True),
        (ModelSettings(api_key="k", name="m"), False),
        (ModelSettings(api_key="k", api_mode="local"), False),
    ],
)
def test_an_endpoint_or_key_without_a_model_needs_one(model: ModelSettings, expected: bool) -> None:
    assert needs_model_name(dataclasses.replace(Settings(), model=model)) is expected


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("model.api_key", "", ""),
        ("model.api_key", "short", "***"),
        ("model.api_key", "sk-1234567890abcdef", "***cdef"),
        ("auxiliary.compression.api_key", "sk-1234567890abcdef", "***cdef"),
        ("model.base_url", "https://me:secret@host/v1", "https://***@host/v1"),
        ("model.base_url", "https://host/v1@2", "https://host/v1@2"),
        ("model.max_output_tokens", 7, 7),
        ("tools.allowed_paths", ("/a", "/b"), ["/a", "/b"]),
        (
            "model.fallbacks",
            (RouteSettings("m", "https://u:p@h/v1", "sk-0123456789abcdef"),),
            [{"name": "m", "base_url": "https://***@h/v1", "api_key": "***cdef"}],
        ),
    ],
)
def test_a_value_is_shown_without_its_secret(key: str, value: Any, shown: Any) -> None:
    assert redact_value(key, value) == shown
