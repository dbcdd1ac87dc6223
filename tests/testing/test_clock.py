"""The clock that tests drive."""

from __future__ import annotations

import pytest

from agent.base.clock import Clock
from agent.testing.clock import FakeClock


def test_both_clocks_move_only_when_told() -> None:
    fake = FakeClock(started_at=50.0)
    clock: Clock = fake
    assert (clock.now(), clock.monotonic()) == (50.0, 1_000.0)
    fake.advance(2.5)
    assert (clock.now(), clock.monotonic()) == (52.5, 1_002.5)


def test_a_set_back_moves_the_wall_clock_alone() -> None:
    fake = FakeClock(started_at=50.0)
    fake.set_back(20)
    assert (fake.now(), fake.monotonic()) == (30.0, 1_000.0)


def test_time_does_not_go_back_by_advancing() -> None:
    with pytest.raises(ValueError, match=r"^time goes forward only, not by -1 s$"):
        FakeClock().advance(-1)
