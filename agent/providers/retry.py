"""Which failed calls are sent again, and after how long: only where it can help, never once an
answer has begun. tenacity is imported at the first failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from agent.base.errors import (
    CallTimeout,
    NetworkError,
    OverloadError,
    ProviderError,
    RateError,
)
from agent.providers.call import Call

if TYPE_CHECKING:
    import tenacity

_T = TypeVar("_T")

LONGEST_WAIT_S = 30.0
"""A provider that asks for a longer wait than this is not waited for."""

_FIRST_WAIT_S = 0.25

_MOST_RETRIES: dict[type[ProviderError], int] = {
    RateError: 2,
    OverloadError: 2,
    NetworkError: 2,
    CallTimeout: 1,
}


def send_with_retries(send: Callable[[], _T], *, call: Call, retries: int) -> _T:
    """Return what `send` returns, sending again up to `retries` times after faults that may pass.

    A provider's Retry-After is obeyed up to `LONGEST_WAIT_S`; the total limit counts the waits.
    Raises: the last fault; CallCancelled as soon as the call is cancelled.
    """
    try:
        return send()
    except ProviderError as fault:
        if not _may_pass(fault, call, retries_done=0, retries=retries):
            raise
        first = fault
    return _send_again(send, first, call=call, retries=retries)


def _send_again(send: Callable[[], _T], first: ProviderError, *, call: Call, retries: int) -> _T:
    import tenacity

    earlier = [first]
    backoff = tenacity.wait_exponential_jitter(
        multiplier=_FIRST_WAIT_S, max=LONGEST_WAIT_S, jitter=_FIRST_WAIT_S
    )

    def attempt() -> _T:
        if earlier:
            raise earlier.pop()
        call.check()
        return send()

    def is_hopeless(state: tenacity.RetryCallState) -> bool:
        fault = _fault_of(state)
        return not (
            isinstance(fault, ProviderError)
            and _may_pass(fault, call, retries_done=state.attempt_number - 1, retries=retries)
        )

    def wait_s(state: tenacity.RetryCallState) -> float:
        asked_s = getattr(_fault_of(state), "retry_after_s", None)
        return max(asked_s or 0.0, backoff(state))

    def sleep(seconds: float) -> None:
        call.watch.cancel.wait(min(seconds, max(0.0, call.remaining_total_s())))
        call.check()

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(ProviderError),
        stop=is_hopeless,
        wait=wait_s,
        sleep=sleep,
        reraise=True,
    )
    return retrying(attempt)


def _fault_of(state: tenacity.RetryCallState) -> BaseException | None:
    return None if state.outcome is None else state.outcome.exception()


def _may_pass(fault: ProviderError, call: Call, *, retries_done: int, retries: int) -> bool:
    """Return whether sending the same request once more may help."""
    most = min(retries, _MOST_RETRIES.get(type(fault), 0))
    wait_s = fault.retry_after_s or 0.0
    longest_s = min(LONGEST_WAIT_S, call.remaining_total_s())
    return not call.answered and retries_done < most and wait_s < longest_s
