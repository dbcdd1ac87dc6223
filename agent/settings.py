"""Command line, environment and file to the `Settings` record; only surfaces call this.

Keys, types and defaults are read off the records in `agent/base/settings.py`: a new field there
is a new key here. Only limits and choices stand below. Every error names the key, the value and
where it came from.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import re
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from agent.base.errors import SettingsError
from agent.base.messages import clean_text
from agent.base.paths import hermes_home
from agent.base.record import dataclass
from agent.base.settings import RouteSettings, Settings
from agent.base.yaml_file import parse_value, read_leaves, set_leaf
from agent.tools.atomic import write_atomically

_RANGES: dict[str, tuple[float, float]] = {
    "model.context_length": (4_096, math.inf),
    "model.thinking_tokens": (1_024, math.inf),
    "compression.threshold": (0.05, 0.85),
    "compression.target_ratio": (0.05, 0.80),
    "compression.micro_compact_every_n_turns": (1, math.inf),
    "auxiliary.compression.context_length": (4_096, math.inf),
    "tools.max_iterations": (1, math.inf),
    "local.context_length": (4_096, math.inf),
    "local.threads": (1, 1_024),
    "server.port": (0, 65_535),
    "server.max_turns": (1, 1_000),
    "server.max_body_bytes": (1_000, math.inf),
    "server.warm_sessions": (1, math.inf),
    "proxy.context_length": (4_096, math.inf),
    "proxy.max_requests": (1, 10_000),
}
"""Smallest and largest value; every other number may be 0 or more, and a default always stands."""

_CHOICES: dict[str, tuple[str, ...]] = {
    "compression.anthropic_context_editing": ("off", "tools", "all"),
    "compression.codex_app_server_auto": ("native", "off"),
    "model.image_support": ("auto", "on", "off"),
    "model.api_mode": (
        "chat_completions",
        "responses",
        "anthropic_messages",
        "codex_app_server",
        "local",
    ),
    "tools.approval": ("ask", "auto", "off"),
}
_SECRET = re.compile(r"(^|_)(api_key|token|password|secret)$")
_URL_CREDENTIALS = re.compile(r"(?<=://)[^/?#@\s]+(?=@)")
_KIND_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
_PREFIX = "HERMES_"
_ENDPOINTS = {
    "OPENAI_API_KEY": "https://api.openai.com/v1",
    "OPENROUTER_API_KEY": "https://openrouter.ai/api/v1",
    "ANTHROPIC_API_KEY": "https://api.anthropic.com/v1",
}
"""Provider variables that hold a key, and the endpoint each stands for when none is set."""
_CHAT = "chat_completions"
_WIRE_OF_KEY = {"ANTHROPIC_API_KEY": "anthropic_messages"}


@dataclass(frozen=True)
class _Given:
    """A value as somebody wrote it; `origin` says where, for people."""

    value: Any
    origin: str


# -- what callers use -----------------------------------------------------------------------------


def load_settings(
    overrides: Mapping[str, Any] | None = None,
    *,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Return the settings in force: overrides, environment, `config.yaml`, defaults, in this order.

    Shape: `overrides` maps dotted keys (or nested sections) to values; None means not given.
    `home` is the folder of the file, default `$HERMES_HOME`; `environ` default `os.environ`.
    Raises: SettingsError that names key, value and origin; unknown keys fail in every layer.
    """
    environ = os.environ if environ is None else environ
    given = _from_file((home or hermes_home()) / "config.yaml")
    upper = _from_environment(environ) | _from_overrides(overrides or {})
    own = (given | upper).get("model.base_url")
    mode = (given | upper).get("model.api_mode")
    said = [str(item.value) if item else "" for item in (own, mode)]
    given |= _from_provider_variables(environ, *said) | upper
    values = {key: _checked(key, item) for key, item in given.items()}
    return typing.cast("Settings", _build(Settings, "", values))


def get_value(settings: Settings, key: str) -> Any:
    """Return the value of a dotted key. Raises: SettingsError for an unknown key."""
    _require_known(key, "")
    value: Any = settings
    for name in key.split("."):
        value = getattr(value, name)
    return value


def set_value(key: str, text: str, *, home: Path | None = None) -> Any:
    """Write one key to `config.yaml` and return its value; comments and other keys stay.

    The file is replaced in one step; a new one is readable by its owner only.
    Raises: SettingsError when the key or value is wrong, the file is broken, or it is written in
    a form in which one value cannot be replaced.
    """
    _require_known(key, "")
    if clean_text(text) != text:
        raise SettingsError(f"{key} {text!r} is not text; give it in UTF-8")
    value = _checked(key, _Given(_read_text(key, text), ""))
    path = ((home or hermes_home()) / "config.yaml").resolve()
    changed = set_leaf(_read(path), str(path), _is_section, key, _plain(value))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        write_atomically(path, changed.encode())
    except OSError as error:
        raise SettingsError(
            f"cannot write {str(path)!r}: {error.strerror}; set {key} by hand"
        ) from error
    return value


def key_names() -> list[str]:
    """Return every dotted key, in the order of the records."""
    return list(_leaf_types())


def needs_model_name(settings: Settings) -> bool:
    """Return whether an endpoint or key is set but no model: then its models should be listed."""
    model = settings.model
    return bool(model.base_url or model.api_key) and not model.name and model.api_mode != "local"


def redact_value(key: str, value: Any) -> Any:
    """Return a value as it may be shown: of a key the last four characters, no URL password."""
    if value and _SECRET.search(key.rpartition(".")[2]):
        return "***" + (value[-4:] if isinstance(value, str) and len(value) >= 16 else "")
    if isinstance(value, str):
        return _URL_CREDENTIALS.sub("***", value)
    if isinstance(value, tuple | list):
        return [redact_value(key, item) for item in value]
    if isinstance(value, RouteSettings | Mapping):
        fields = _plain(value).items()
        return {name: redact_value(str(name), item) for name, item in fields}
    return value


def _plain(value: Any) -> Any:
    """Return a value in the lists and mappings of JSON; of a route what is set."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, RouteSettings):
        fields = dataclasses.asdict(value)
        return {name: item for name, item in fields.items() if item}
    return value


# -- keys, read off the records -------------------------------------------------------------------


@cache
def _hints(record: type) -> dict[str, Any]:
    return typing.get_type_hints(record)


@cache
def _leaf_types() -> dict[str, Any]:
    """Return the type of every key."""
    return dict(_walk(Settings, ""))


def _walk(record: type, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, kind in _hints(record).items():
        if dataclasses.is_dataclass(kind):
            yield from _walk(typing.cast("type", kind), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", kind


def _is_section(key: str) -> bool:
    return any(name.startswith(f"{key}.") for name in _leaf_types())


def _build(record: type, prefix: str, values: Mapping[str, Any]) -> Any:
    fields: dict[str, Any] = {}
    for name, kind in _hints(record).items():
        key = f"{prefix}{name}"
        if dataclasses.is_dataclass(kind):
            fields[name] = _build(typing.cast("type", kind), f"{key}.", values)
        elif key in values:
            fields[name] = values[key]
    return record(**fields)


def _require_known(key: str, origin: str) -> None:
    if key in _leaf_types():
        return
    source = f" ({origin})" if origin else ""
    if _is_section(key):
        first = next(name for name in key_names() if name.startswith(f"{key}."))
        raise SettingsError(f"{key!r}{source} is a section; set a key in it, such as {first!r}")
    near = difflib.get_close_matches(key, key_names(), n=1, cutoff=0.5)
    advice = (
        f"did you mean {near[0]!r}?" if near else f"known sections: {', '.join(_hints(Settings))}"
    )
    raise SettingsError(f"unknown settings key {key!r}{source}; {advice}")


# -- values ---------------------------------------------------------------------------------------


def _checked(key: str, given: _Given) -> Any:
    """Return the value in the type of its key. Raises: SettingsError when it is out of range."""
    kind = _leaf_types()[key]
    if kind == tuple[RouteSettings, ...]:
        return _checked_routes(key, given)
    value = _typed(key, kind, given)
    return value if value == get_value(Settings(), key) else _within(key, key, value, given)


def _typed(key: str, kind: Any, given: _Given) -> Any:
    import pydantic

    try:
        return pydantic.TypeAdapter(kind).validate_python(given.value)
    except pydantic.ValidationError as error:
        words = _KIND_WORDS.get(kind, "a list of what it holds")
        raise _wrong(key, given, f"is not {words}") from error


def _within(key: str, rule: str, value: Any, given: _Given) -> Any:
    """Return the value. Raises: SettingsError when it is not what the rules of `rule` allow."""
    choices = _CHOICES.get(rule)
    if choices is not None and value not in choices:
        raise _wrong(key, given, f"is unknown; set it to one of: {', '.join(choices)}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = _RANGES.get(rule, (0, math.inf))
        if not low <= value <= high or math.isinf(value):
            limit = f"{low:g} or more" if math.isinf(high) else f"{low:g} to {high:g}"
            raise _wrong(key, given, f"is out of range; set it to {limit}")
    return value


def _checked_routes(key: str, given: _Given) -> tuple[RouteSettings, ...]:
    """Return routes, each of whose fields follows the rules of the model's key of that name."""
    if not isinstance(given.value, list | tuple):
        raise _wrong(key, given, "is not a list of routes, such as [{name: a-model}]")
    return tuple(
        _checked_route(f"{key}[{place}]", _Given(item, given.origin))
        for place, item in enumerate(given.value)
    )


def _checked_route(key: str, given: _Given) -> RouteSettings:
    kinds = _hints(RouteSettings)
    if not isinstance(given.value, Mapping | RouteSettings):
        raise _wrong(key, given, f"is not a route; set of it: {', '.join(kinds)}")
    fields: dict[str, Any] = {}
    for name, item in _plain(given.value).items():
        if name not in kinds:
            raise _wrong(f"{key}.{name}", _Given(item, given.origin), _unknown_field(name, kinds))
        one = _Given(item, given.origin)
        value = _typed(f"{key}.{name}", kinds[name], one)
        fields[name] = value and _within(f"{key}.{name}", f"model.{name}", value, one)
    route = RouteSettings(**fields)
    if not (route.name or route.base_url or route.api_mode):
        raise _wrong(key, given, "names no model; set name, base_url or api_mode of it")
    return route


def _unknown_field(name: str, kinds: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(str(name), kinds, n=1, cutoff=0.5)
    advice = f"did you mean {near[0]!r}?" if near else f"set of it: {', '.join(kinds)}"
    return f"is no key of a route; {advice}"


def _wrong(key: str, given: _Given, what: str) -> SettingsError:
    source = f" ({given.origin})" if given.origin else ""
    return SettingsError(f"{key} {redact_value(key, given.value)!r}{source} {what}")


def _read_text(key: str, text: str) -> Any:
    """Return what a person typed for a key: lists in YAML or JSON form, anything else as it is."""
    if _leaf_types()[key] in _KIND_WORDS:
        return text
    try:
        return parse_value(text)
    except ValueError as error:
        raise SettingsError(f"{key} {text!r} is not a list in YAML or JSON form") from error


# -- command line and environment -----------------------------------------------------------------


def _from_overrides(overrides: Mapping[str, Any], prefix: str = "") -> dict[str, _Given]:
    layer: dict[str, _Given] = {}
    for name, value in overrides.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and _is_section(key):
            layer |= _from_overrides(value, f"{key}.")
        elif value is not None:
            _require_known(key, "command line")
            layer[key] = _Given(value, "command line")
    return layer


def _variable(name: str) -> str:
    return f"environment variable {name}"


def _from_environment(environ: Mapping[str, str]) -> dict[str, _Given]:
    """Return the `HERMES_SECTION__KEY` variables; others that begin so belong to somebody else."""
    layer: dict[str, _Given] = {}
    for name, text in environ.items():
        if not name.startswith(_PREFIX):
            continue
        key = name.removeprefix(_PREFIX).lower().replace("__", ".")
        if "." in key or _is_section(key):
            _require_known(key, _variable(name))
            layer[key] = _Given(_read_text(key, text), _variable(name))
    return layer


def _from_provider_variables(
    environ: Mapping[str, str], base_url: str, mode: str
) -> dict[str, _Given]:
    """Return key, endpoint and wire from the variables that other programs use as well.

    `base_url` and `mode` are the endpoint and the wire that are set otherwise, if any; they choose
    between two keys.
    """
    layer: dict[str, _Given] = {}
    if url := environ.get("OPENAI_BASE_URL"):
        layer["model.base_url"] = _Given(url, _variable("OPENAI_BASE_URL"))
        base_url = base_url or url

    def is_other(name: str) -> bool:
        if base_url:
            return not base_url.startswith(_ENDPOINTS[name].removesuffix("/v1"))
        return _WIRE_OF_KEY.get(name, _CHAT) != (mode or _CHAT)

    for name in sorted(_ENDPOINTS, key=is_other):
        if secret := environ.get(name):
            layer["model.api_key"] = _Given(secret, _variable(name))
            if not base_url:
                layer["model.base_url"] = _Given(_ENDPOINTS[name], _variable(name))
            if not mode and name in _WIRE_OF_KEY and not (base_url and is_other(name)):
                layer["model.api_mode"] = _Given(_WIRE_OF_KEY[name], _variable(name))
            break
    return layer


# -- the file -------------------------------------------------------------------------------------


def _from_file(path: Path) -> dict[str, _Given]:
    layer: dict[str, _Given] = {}
    for key, leaf in read_leaves(_read(path), str(path), _is_section).items():
        origin = f"{path} line {leaf.line}"
        if leaf.value is None and _is_section(key):
            continue
        _require_known(key, origin)
        if leaf.value is not None:
            layer[key] = _Given(leaf.value, origin)
    return layer


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"{str(path)!r} is not UTF-8 at byte {error.start}; save it as UTF-8"
        ) from error
    except OSError as error:
        raise SettingsError(f"cannot read {str(path)!r}: {error.strerror}") from error
