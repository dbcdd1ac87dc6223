"""Setting one key of the settings file and leaving the rest as it was."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.base.errors import SettingsError
from agent.settings import get_value, load_settings, set_value


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "settings"
    folder.mkdir()
    return folder


FILE = """\
# my set-up
model:  # which one
    name: old  # the small one
    base_url: http://127.0.0.1:8000/v1

tools: {approval: ask}
context:
"""
EDITS = {
    "replaced": ("model.name", "new", [("name: old", 'name: "new"')]),
    "added to a section": (
        "model.context_length",
        "8192",
        [("    name: old", "    context_length: 8192\n    name: old")],
    ),
    "replaced in braces": ("tools.approval", "off", [("approval: ask", 'approval: "off"')]),
    "added in braces": ("tools.max_iterations", "5", [("{app", "{max_iterations: 5, app")]),
    "added to an empty section": (
        "context.recall",
        "no",
        [("context:\n", "context:\n  recall: false\n")],
    ),
    "in a new section": (
        "compression.threshold",
        "0.5",
        [("model:  #", "compression:\n  threshold: 0.5\nmodel:  #")],
    ),
    "in a new section of a section": (
        "auxiliary.compression.model",
        "m",
        [("model:  #", 'auxiliary:\n  compression:\n    model: "m"\nmodel:  #')],
    ),
}


@pytest.mark.parametrize(("key", "text", "changes"), EDITS.values(), ids=EDITS)
def test_setting_a_key_leaves_the_rest_of_the_file_as_it_was(
    home: Path, key: str, text: str, changes: list[tuple[str, str]]
) -> None:
    path = home / "config.yaml"
    path.write_text(FILE, "utf-8")
    set_value(key, text, home=home)
    expected = FILE
    for before, after in changes:
        expected = expected.replace(before, after)
    assert path.read_text("utf-8") == expected


def test_the_first_key_makes_a_file_that_only_its_owner_reads(home: Path) -> None:
    folder = home / "new" / "home"
    set_value("model.api_key", "sk-1", home=folder)
    path = folder / "config.yaml"
    assert path.read_text("utf-8") == 'model:\n  api_key: "sk-1"\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(folder.iterdir()) == [path]


def test_a_linked_file_stays_a_link(home: Path) -> None:
    real = home / "dotfiles.yaml"
    real.write_text("model: {name: a}\n", "utf-8")
    (home / "config.yaml").symlink_to(real)
    set_value("model.name", "b", home=home)
    assert (home / "config.yaml").is_symlink()
    assert real.read_text("utf-8") == 'model: {name: "b"}\n'


def test_a_file_that_cannot_be_edited_is_left_alone(home: Path) -> None:
    path = home / "config.yaml"
    file = "{model: {name: a}}\n"
    path.write_text(file, "utf-8")
    with pytest.raises(SettingsError) as caught:
        set_value("tools.approval", "off", home=home)
    assert str(caught.value) == (
        f"'{path}' cannot be edited in place; set tools.approval in it by hand"
    )
    assert path.read_text("utf-8") == file


def test_a_broken_file_is_left_alone(home: Path) -> None:
    (home / "config.yaml").write_text("- a\n", "utf-8")
    with pytest.raises(SettingsError, match="holds a list"):
        set_value("tools.approval", "off", home=home)
    assert (home / "config.yaml").read_text("utf-8") == "- a\n"


def test_a_wrong_value_is_not_written(home: Path) -> None:
    with pytest.raises(SettingsError, match=r"local.threads '0' is out of range"):
        set_value("local.threads", "0", home=home)
    assert list(home.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(home: Path) -> None:
    (home / "file").write_text("", "utf-8")
    with pytest.raises(SettingsError, match=r"config.yaml': Not a directory"):
        set_value("model.name", "a", home=home / "file")


@given(
    text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    before=st.sampled_from(["", FILE, "model: {}\n", "tools:\n"]),
)
def test_any_text_is_read_back_as_it_was_set(
    tmp_path_factory: pytest.TempPathFactory, text: str, before: str
) -> None:
    home = tmp_path_factory.mktemp("home")
    path = home / "config.yaml"
    path.write_text(before, "utf-8")
    set_value("model.name", text, home=home)
    now = path.read_text("utf-8")
    assert get_value(load_settings(home=home, environ={}), "model.name") == text
    kept, left = (yaml.safe_load(content) or {} for content in (before, now))
    assert {**left, "model": None} == {**kept, "model": None}


def test_what_is_no_text_is_not_written(home: Path) -> None:
    with pytest.raises(SettingsError, match=r"model.name 'a\\udcff' is not text; give it in UTF-8"):
        set_value("model.name", "a\udcff", home=home)
    assert list(home.iterdir()) == []
