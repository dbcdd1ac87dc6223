"""`hermes pins` and the slash commands' agent methods."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from agent.testing.builders import user
from hermes_state import SessionDB
from tests.cli.conftest import Hermes


@pytest.fixture
def session(endpoint: object) -> Iterator[SessionDB]:
    """A session with one rule and one remark."""
    store = SessionDB()
    store.create_session("s1", "cli")
    store.append("s1", [user("Never push to main."), user("Thanks!")])
    yield store
    store.close()


def test_pins_are_listed_with_their_source(hermes: Hermes, session: SessionDB) -> None:
    ran = hermes("pins", "list", "s1")
    assert (ran.code, ran.err) == (0, "")
    assert "message #1" in ran.out
    assert "Never push to main." in ran.out


def test_a_pin_is_set_listed_and_taken_off(hermes: Hermes, session: SessionDB) -> None:
    added = hermes("pins", "add", "s1", "Answer in metric units.")
    assert (added.code, added.err) == (0, "")
    listed = json.loads(hermes("pins", "list", "s1", "--json").out)
    assert [(pin["text"], pin["source_seq"]) for pin in listed] == [
        ("Answer in metric units.", None),
        ("Never push to main.", 1),
    ]
    removed = hermes("pins", "remove", "s1", str(listed[0]["id"]))
    assert removed.out == f"took off pin {listed[0]['id']}: Answer in metric units.\n"
    assert [pin.text for pin in session.pins("s1")] == ["Never push to main."]


def test_a_secret_is_no_pin(hermes: Hermes, session: SessionDB) -> None:
    ran = hermes("pins", "add", "s1", "Use ghp_" + "a1B2" * 9)
    assert ran.code == 2
    assert "holds a secret" in ran.err
    assert "ghp_" not in ran.err


def test_a_pin_past_the_budget_is_refused_with_the_figures(
    hermes: Hermes, session: SessionDB
) -> None:
    ran = hermes("pins", "add", "s1", "Keep this in mind: " + "a long wish " * 4_000)
    assert ran.code == 2
    assert "for pins are taken by 0 others" in ran.err


def test_a_pin_that_does_not_exist_is_named(hermes: Hermes, session: SessionDB) -> None:
    ran = hermes("pins", "remove", "s1", "99")
    assert (ran.code, "no pin 99 in force" in ran.err) == (2, True)
