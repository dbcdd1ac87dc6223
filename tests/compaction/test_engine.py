"""Built-in and registered engines."""

from __future__ import annotations

import importlib
import sys

import pytest

from agent.base.errors import SettingsError
from agent.base.settings import CompressionSettings
from agent.compaction.context_compressor import ContextCompressor
from agent.compaction.engine import open_engine

ENGINE = """
class LastThree:
    def should_compress(self, tokens):
        return tokens > 10

    def compress(self, messages, *, current_tokens=None, focus_topic=None, force=False):
        return messages[-3:]
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A distribution on the path that registers an engine named `last-three`."""
    (tmp_path / "last_three_engine.py").write_text(ENGINE, encoding="utf-8")
    info = tmp_path / "last_three_engine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: last-three-engine\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[hermes.context_engines]\nlast-three = last_three_engine:LastThree\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("last_three_engine", None)


def test_the_built_in_engine_follows_the_settings():
    engine = open_engine("builtin", CompressionSettings(threshold=0.5))
    assert isinstance(engine, ContextCompressor)
    engine.update_window(50_000, 0)
    assert engine.threshold_tokens == 25_000


def test_an_installed_engine_is_found_by_name(installed):
    engine = open_engine("last-three", CompressionSettings())
    assert engine.should_compress(11) is True
    messages = [{"role": "user", "content": str(n)} for n in range(5)]
    assert engine.compress(messages, current_tokens=1, focus_topic=None, force=True) == messages[2:]


def test_an_unknown_engine_is_refused_with_the_known_ones(installed):
    with pytest.raises(SettingsError) as error:
        open_engine("lastthree", CompressionSettings())
    assert str(error.value) == (
        "context.engine 'lastthree' is not installed; known engines: builtin, last-three. "
        "Install the package that provides it or choose one of these"
    )
