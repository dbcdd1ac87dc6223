"""The fence: cancel or commit, never both, and a clock that the cancel stops."""

from __future__ import annotations

import threading

import pytest

from agent.base.errors import UsageError
from agent.compaction.fence import CompressionCommitFence
from agent.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def fence(clock):
    return CompressionCommitFence(clock=clock)


def test_a_cancel_before_the_commit_wins_and_cancels_the_token(fence):
    assert fence.cancel_before_commit() is True
    assert (fence.is_cancelled, fence.token.cancelled) == (True, True)
    assert fence.begin_commit() is False


def test_a_published_commit_wins_over_a_later_cancel(fence):
    assert fence.begin_commit() is True
    fence.finish_commit()
    assert fence.cancel_before_commit() is False
    assert (fence.is_cancelled, fence.token.cancelled) == (False, False)


def test_a_commit_that_published_nothing_leaves_the_cancel_free_to_win(fence):
    assert fence.begin_commit() is True
    fence.finish_commit(published=False)
    assert fence.cancel_before_commit() is True
    assert fence.begin_commit() is False


def test_finishing_a_commit_that_never_began_does_nothing(fence):
    fence.finish_commit()
    assert fence.cancel_before_commit() is True


def test_a_cancel_waits_for_the_commit_that_is_running(fence):
    assert fence.begin_commit() is True
    answers: list[bool] = []
    stopper = threading.Thread(target=lambda: answers.append(fence.cancel_before_commit()))
    stopper.start()
    assert fence.try_cancel_before_commit() is None
    fence.finish_commit()
    stopper.join(10)
    assert answers == [False]


def test_a_cancel_that_does_not_wait_wins_when_nothing_commits(fence):
    assert fence.try_cancel_before_commit() is True
    assert fence.token.cancelled is True


def test_the_stop_event_is_set_and_refuses_a_commit(fence):
    event = threading.Event()
    assert fence.begin_commit(event) is True
    fence.finish_commit(published=False)
    assert fence.cancel_before_commit(event) is True
    assert event.is_set()

    other = CompressionCommitFence()
    assert other.begin_commit(event) is False
    assert other.begin_commit() is True
    other.finish_commit()


def test_a_refused_commit_leaves_the_lock_free(fence):
    fence.cancel_before_commit()
    assert fence.begin_commit() is False
    assert fence.try_cancel_before_commit() is True


def test_revoking_needs_no_lock_and_refuses_every_later_commit(fence):
    assert fence.begin_commit() is True
    fence.revoke_commit_admission()
    fence.finish_commit()
    assert (fence.is_cancelled, fence.token.cancelled) == (True, True)
    assert fence.begin_commit() is False


def test_silence_is_read_from_the_progress_mark_each_time(fence, clock):
    clock.advance(2)
    assert fence.seconds_since_progress() == 2
    fence._last_progress = clock.monotonic() - 7
    assert fence.seconds_since_progress() == 7
    fence.touch_progress()
    assert fence.seconds_since_progress() == 0
    fence._last_progress = clock.monotonic() + 5
    assert fence.seconds_since_progress() == 0


@pytest.mark.parametrize("stop", ["cancel_before_commit", "revoke_commit_admission"])
def test_the_clock_stands_still_from_the_stop_on(fence, clock, stop):
    clock.advance(0.5)
    getattr(fence, stop)()
    clock.advance(600)
    assert fence.seconds_since_progress() == 0.5
    fence.revoke_commit_admission()
    assert fence.seconds_since_progress() == 0.5


def test_a_stop_in_silence_counts_as_stalled_however_late_it_is_judged(fence, clock):
    clock.advance(2)
    fence.cancel_before_commit()
    fence.touch_progress()
    fence._last_progress = clock.monotonic() - 2
    assert fence.seconds_since_progress() == 2


class AskedClock(FakeClock):
    """Says when somebody reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    def monotonic(self) -> float:
        value = super().monotonic()
        self.asked.set()
        return value


def test_the_moment_of_the_stop_is_when_it_was_asked_not_when_it_got_the_lock():
    clock = AskedClock()
    fence = CompressionCommitFence(clock=clock)
    fence.begin_commit()
    clock.asked.clear()
    stopper = threading.Thread(target=fence.cancel_before_commit)
    stopper.start()
    assert clock.asked.wait(10)
    clock.advance(90)
    fence.finish_commit(published=False)
    stopper.join(10)
    assert fence.seconds_since_progress() == 0


def test_the_total_ceiling_refuses_the_commit(clock):
    fence = CompressionCommitFence(10, clock=clock)
    clock.advance(9.9)
    assert (fence.deadline_exceeded, fence.is_cancelled) == (False, False)
    clock.advance(0.1)
    assert (fence.deadline_exceeded, fence.is_cancelled) == (True, True)
    assert fence.begin_commit() is False


@pytest.mark.parametrize("seconds", [0, -3, float("nan")])
def test_a_ceiling_that_is_not_positive_is_refused(fence, seconds):
    with pytest.raises(UsageError, match="must be above 0 seconds"):
        fence.set_total_ceiling_seconds(seconds)
    with pytest.raises(ValueError, match="above 0"):
        CompressionCommitFence(seconds)


def test_exactly_one_of_many_stops_and_commits_wins():
    for _ in range(30):
        fence = CompressionCommitFence()
        barrier = threading.Barrier(4)
        committed: list[bool] = []
        cancelled: list[bool] = []

        def commit(fence=fence, barrier=barrier, committed=committed) -> None:
            barrier.wait()
            admitted = fence.begin_commit()
            committed.append(admitted)
            if admitted:
                fence.finish_commit()

        def stop(fence=fence, barrier=barrier, cancelled=cancelled) -> None:
            barrier.wait()
            cancelled.append(fence.cancel_before_commit())

        threads = [threading.Thread(target=target) for target in (commit, stop, stop, stop)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert set(cancelled) == {not committed[0]}
