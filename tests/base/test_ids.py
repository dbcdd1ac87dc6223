"""Ids sort by time, do not collide and say when a session began."""

from __future__ import annotations

import re
import time

from agent.base.ids import new_pass_id, new_session_id, new_turn_id


def test_a_session_id_names_the_second_it_was_made_in() -> None:
    at = time.mktime((2026, 11, 30, 14, 40, 20, 0, 0, -1))
    assert re.fullmatch(r"20261130_144020_[0-9a-f]{6}", new_session_id(at))


def test_session_ids_sort_by_their_time() -> None:
    ids = [new_session_id(1_700_000_000.0 + step * 86_400) for step in range(5)]
    assert sorted(ids) == ids


def test_a_session_id_is_of_now_unless_told_otherwise() -> None:
    # strftime alone asks a coarser clock, which may be a second behind
    before, made = time.time(), new_session_id()
    assert new_session_id(before)[:15] <= made[:15] <= new_session_id(time.time())[:15]


def test_ids_made_at_once_differ() -> None:
    for make in (new_pass_id, new_turn_id):
        assert len({make() for _ in range(500)}) == 500


def test_pass_and_turn_ids_are_plain_hexadecimal() -> None:
    assert re.fullmatch(r"[0-9a-f]{32}", new_pass_id())
    assert re.fullmatch(r"[0-9a-f]{16}", new_turn_id())
