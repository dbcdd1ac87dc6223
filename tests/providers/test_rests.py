"""How long a route rests, and what is said when no route is left."""

from __future__ import annotations

import pytest

from agent.base.errors import (
    AuthError,
    ContentFiltered,
    NetworkError,
    OverloadError,
    ProviderError,
    QuotaError,
    RateError,
)
from agent.providers.rests import all_failed, is_route_fault, rest_seconds

RESTS = {
    "a wrong key, long": (AuthError("x"), [1_800, 3_600, 7_200]),
    "no credit, long": (QuotaError("x"), [1_800, 3_600, 7_200]),
    "too many requests": (RateError("x"), [30, 60, 120]),
    "too many requests, as asked": (RateError("x", retry_after_s=400), [400, 400, 400]),
    "overload, short": (OverloadError("x"), [30, 60, 120]),
    "overload, at once": (OverloadError("x", retry_after_s=0), [1, 1, 1]),
    "network, short": (NetworkError("x"), [30, 60, 120]),
    "content rules, none": (ContentFiltered("x"), [0, 0, 0]),
}


@pytest.mark.parametrize(("fault", "seconds"), RESTS.values(), ids=RESTS.keys())
def test_a_rest_is_as_long_as_its_class_asks(fault: ProviderError, seconds: list[float]) -> None:
    assert [rest_seconds(fault, strikes) for strikes in (1, 2, 3)] == seconds
    assert is_route_fault(fault) is (seconds != [0, 0, 0])


def test_no_rest_is_longer_than_a_day() -> None:
    assert rest_seconds(AuthError("x"), 400) == 86_400
    assert rest_seconds(NetworkError("x"), 400) == 900
    assert rest_seconds(RateError("x", retry_after_s=1e8), 1) == 86_400


def test_one_failure_stays_as_it_is() -> None:
    fault = AuthError("x", route="a")
    assert all_failed([fault]) is fault


def test_what_passes_soonest_is_raised_and_every_route_is_named() -> None:
    faults = [
        AuthError("a refused the key", route="m at a", status=401),
        RateError("b is busy", route="m at b", status=429, retry_after_s=7),
        QuotaError("c has no credit", route="m at c", status=402),
    ]
    error = all_failed(faults)
    assert type(error) is RateError
    assert (error.route, error.status, error.retry_after_s) == ("m at b", 429, 7)
    assert str(error) == (
        "no route answered: m at a (auth); m at b (rate); m at c (quota); "
        "the last said: c has no credit"
    )
