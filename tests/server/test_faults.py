"""Every failure has an answer."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from agent.base.errors import HermesError, ProviderError, RateError, StoreError
from agent.server.faults import answer_of


def kinds(base: type[HermesError]) -> Iterator[type[HermesError]]:
    """Yield a class and all below it."""
    yield base
    for below in base.__subclasses__():
        yield from kinds(below)


def raised(kind: type[HermesError]) -> HermesError:
    """Return an error of a kind, whatever it is made of."""
    error = kind.__new__(kind)
    Exception.__init__(error, "went\nwrong")
    error.__dict__["retry_after_s"] = None
    return error


def test_no_failure_of_ours_is_an_internal_error() -> None:
    answers = {kind: answer_of(raised(kind)) for kind in kinds(HermesError)}
    statuses = {400, 404, 409, 429, 502, 503, 504}
    assert {answer.status for answer in answers.values()} == statuses
    assert all(answer.code and "\n" not in answer.message for answer in answers.values())


def test_a_provider_that_names_a_time_is_passed_on() -> None:
    answer = answer_of(RateError("slow down", status=429, retry_after_s=2.3))
    assert (answer.status, answer.headers) == (429, {"Retry-After": "3"})
    assert answer.body() == {
        "error": {"type": "rate_limit_error", "message": "slow down", "code": "rate"}
    }


def test_the_nearest_class_decides() -> None:
    class OddStore(StoreError):
        pass

    class OddProvider(ProviderError):
        pass

    assert answer_of(OddStore("x")).status == 503
    assert answer_of(OddProvider("x")).status == 502


def test_what_nobody_expected_is_logged_and_told_without_a_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = "-".join(("sk", "a1B2c3D4e5F6g7H8i9J0k1L2"))
    try:
        raise RuntimeError(f"odd, with key {key}")
    except RuntimeError as error:
        with caplog.at_level(logging.ERROR):
            answer = answer_of(error)
    assert (answer.status, answer.code) == (500, "internal")
    assert answer.message.startswith("unexpected RuntimeError: odd")
    assert key not in answer.message + caplog.text
    assert "Traceback" in caplog.text
