"""The stored conversations on the command line."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from agent.base.paths import default_database
from agent.testing.clock import FakeClock
from hermes_state import SessionDB
from tests.cli.conftest import Hermes, Ran

AT = time.mktime((2026, 11, 30, 14, 40, 0, 0, 0, -1))


@pytest.fixture(autouse=True)
def filled() -> Iterator[SessionDB]:
    store = SessionDB(db_path=default_database(), clock=FakeClock(AT))
    store.create_session("s-1", "cli", title="Garden plan")
    store.append("s-1", [{"role": "user", "content": "the frost comes\x1b[31m in May"}])
    store.append("s-1", [{"role": "assistant", "content": "then sow later"}])
    yield store
    store.close()


def test_sessions_are_listed(hermes: Hermes) -> None:
    assert hermes("sessions", "list").out == (
        "session  last active       messages  passes  title\n"
        "s-1      2026-11-30 14:40         2       0  Garden plan\n"
    )


def test_a_session_is_shown_row_by_row(hermes: Hermes) -> None:
    assert hermes("sessions", "show", "Garden plan").out == (
        "#1 user, 2026-11-30 14:40\nthe frost comes\x1b[31m in May\n\n"
        "#2 assistant, 2026-11-30 14:40\nthen sow later\n"
    )


def test_a_session_is_shown_as_json(hermes: Hermes) -> None:
    shown = json.loads(hermes("sessions", "show", "s-1", "--json").out)
    assert (shown["session"]["id"], shown["session"]["message_count"]) == ("s-1", 2)
    assert shown["messages"][1] == {
        "seq": 2,
        "at": AT,
        "role": "assistant",
        "content": "then sow later",
        "kind": "message",
        "state": "live",
        "made_by": None,
        "compacted_by": None,
    }


def test_words_are_found(hermes: Hermes) -> None:
    assert hermes("sessions", "search", "frost").out == (
        "session  row  role  state  text\n"
        "s-1       #1  user  live   the frost comes\\x1b[31m in May\n"
    )
    assert hermes("sessions", "search", "snow").out == "nothing found for 'snow'\n"
    [hit] = json.loads(hermes("sessions", "search", "sow", "--session", "s-1", "--json").out)
    assert (hit["session_id"], hit["message"]["seq"]) == ("s-1", 2)


def test_a_title_is_given_and_taken_off(hermes: Hermes, filled: SessionDB) -> None:
    assert hermes("sessions", "rename", "s-1", " Frost ") == Ran(0, "s-1 is now 'Frost'\n", "")
    assert filled.session("s-1").title == "Frost"
    assert hermes("sessions", "rename", "Frost", "") == Ran(0, "s-1 has no title now\n", "")
    assert filled.session("s-1").title is None


def test_a_session_is_deleted_for_good(hermes: Hermes, filled: SessionDB) -> None:
    assert hermes("sessions", "delete", "Garden plan", "--yes") == Ran(0, "deleted s-1\n", "")
    assert filled.sessions() == []
    assert hermes("sessions", "list").out == "no sessions yet\n"


def test_rows_are_recalled_word_for_word(hermes: Hermes) -> None:
    expected = "#1 user, 2026-11-30 14:40\nthe frost comes\x1b[31m in May\n"
    assert hermes("recall", "s-1", "--rows", "1") == Ran(0, expected, "")
    assert hermes("recall", "s-1", "frost").out.startswith(expected)
    [row] = json.loads(hermes("recall", "Garden plan", "--rows", "2", "--json").out)
    assert (row["seq"], row["content"]) == (2, "then sow later")
    assert hermes("recall", "s-1", "zebra").out == (
        "[no row holds a word of 'zebra'; try others]\n"
    )


def test_what_was_left_out_is_named_with_a_command_that_works(
    hermes: Hermes, filled: SessionDB
) -> None:
    text = " ".join(f"word{number}" for number in range(3000))
    filled.append("s-1", [{"role": "user", "content": text}])
    ran = hermes("recall", "s-1", "--rows", "3")
    heading, shown, advice = ran.out.splitlines()
    assert heading.startswith("#3 user, 2026-11-30 14:40, characters 0 to ")
    assert text.startswith(shown)
    command = advice[advice.index("hermes recall") : -1].split()[1:]
    assert command == ["recall", "s-1", "--rows", "3", "--offset", str(len(shown))]
    assert text[len(shown) :].startswith(hermes(*command).out.splitlines()[1])


def test_a_store_that_cannot_be_read_ends_with_5(hermes: Hermes, filled: SessionDB) -> None:
    filled.close()
    default_database().write_bytes(b"this is no database, it is a long line of text" * 100)
    ran = hermes("sessions", "list")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (5, "", 1)
    assert str(default_database()) in ran.err
