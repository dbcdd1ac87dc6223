"""The stop signal wakes everybody who registered, once, in whatever order things happen."""

from __future__ import annotations

import threading

from agent.base.cancel import CancelToken


def test_callbacks_run_once_however_often_it_is_cancelled() -> None:
    token, heard = CancelToken(), []
    token.on_cancel(lambda: heard.append("a"))
    token.on_cancel(lambda: heard.append("b"))
    assert not token.cancelled
    token.cancel()
    token.cancel()
    assert (token.cancelled, heard) == (True, ["a", "b"])


def test_a_callback_that_comes_late_runs_at_once() -> None:
    token, heard = CancelToken(), []
    token.cancel()
    forget = token.on_cancel(lambda: heard.append("late"))
    forget()
    assert heard == ["late"]


def test_a_callback_that_left_is_not_called() -> None:
    token, heard = CancelToken(), []
    forget = token.on_cancel(lambda: heard.append("left"))
    token.on_cancel(lambda: heard.append("stayed"))
    forget()
    forget()
    token.cancel()
    assert heard == ["stayed"]


def test_a_callback_may_register_another() -> None:
    token, heard = CancelToken(), []

    def register() -> None:
        token.on_cancel(lambda: heard.append("inner"))

    token.on_cancel(register)
    token.cancel()
    assert heard == ["inner"]


def test_waiting_ends_when_another_thread_cancels() -> None:
    token = CancelToken()
    thread = threading.Thread(target=token.cancel)
    assert token.wait(0) is False
    thread.start()
    assert token.wait(10) is True
    thread.join()


def test_each_callback_is_heard_once_when_threads_race() -> None:
    for _ in range(50):
        token, start = CancelToken(), threading.Barrier(3)
        heard: list[int] = []

        def register(token=token, start=start, heard=heard) -> None:
            start.wait()
            token.on_cancel(lambda: heard.append(1))

        def cancel(token=token, start=start) -> None:
            start.wait()
            token.cancel()

        threads = [threading.Thread(target=work) for work in (register, register, cancel)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert heard == [1, 1]
