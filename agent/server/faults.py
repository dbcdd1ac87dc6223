"""Failures as HTTP: status, headers and the body `{"error": {"type", "message", "code"}}`.

Every surface of the server answers a failure through here, so a client never sees a traceback.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import orjson
from starlette.responses import Response

from agent.base.errors import (
    AuthError,
    CallCancelled,
    CallStalled,
    CallTimeout,
    ContentFiltered,
    ContextCannotFit,
    ContextOverflow,
    HermesError,
    ModelUnavailable,
    NetworkError,
    OverloadError,
    ProviderError,
    QuotaError,
    RateError,
    RequestRefused,
    SettingsError,
    StoreError,
    UndoRefused,
    UnknownPass,
    UnknownSession,
    UsageError,
)
from agent.base.messages import clean_text
from agent.base.record import dataclass
from agent.base.redact import redact, redacted_trace

INVALID = "invalid_request_error"
SERVER = "server_error"
_NO_RETRY = {"x-should-retry": "false"}
"""What keeps the official clients from sending again what cannot succeed."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reason:
    """How one kind of failure is answered."""

    status: int
    type: str
    code: str = ""
    """Empty takes the failure class of the error."""
    retry: bool = True
    """Whether sending the same again can help."""


_REASONS: dict[type[HermesError], Reason] = {
    UnknownSession: Reason(404, INVALID, "session_not_found"),
    UnknownPass: Reason(404, INVALID, "pass_not_found"),
    UndoRefused: Reason(409, INVALID, retry=False),
    SettingsError: Reason(503, SERVER, retry=False),
    UsageError: Reason(400, INVALID, "invalid_value"),
    StoreError: Reason(503, SERVER),
    ContextCannotFit: Reason(400, INVALID, "context_length_exceeded"),
    ContextOverflow: Reason(400, INVALID, "context_length_exceeded"),
    ContentFiltered: Reason(400, INVALID, "content_filter"),
    RequestRefused: Reason(400, INVALID, "refused_by_provider"),
    RateError: Reason(429, "rate_limit_error"),
    QuotaError: Reason(429, "insufficient_quota", "insufficient_quota", retry=False),
    AuthError: Reason(502, "provider_error", retry=False),
    OverloadError: Reason(503, "provider_error"),
    NetworkError: Reason(502, "provider_error"),
    CallTimeout: Reason(504, "provider_error"),
    CallStalled: Reason(504, "provider_error"),
    ModelUnavailable: Reason(503, "provider_error", retry=False),
    ProviderError: Reason(502, "provider_error"),
    CallCancelled: Reason(503, SERVER, "stopped"),
    HermesError: Reason(502, SERVER),
}
"""One entry a class; a class without one takes that of its nearest base."""


@dataclass(frozen=True)
class Answer:
    """A failure that is ready to be sent."""

    status: int
    type: str
    message: str
    code: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """Return the JSON body, which is also what an event stream sends when it breaks."""
        return {"error": {"type": self.type, "message": self.message, "code": self.code}}

    def response(self) -> Response:
        """Return it as a whole response."""
        return Response(
            orjson.dumps(self.body()), self.status, dict(self.headers), "application/json"
        )


class Fault(Exception):
    """A request that is answered with a failure; `answer` says how."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        type: str = INVALID,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.answer = Answer(status, type, _line(message), code, headers or {})


def refused(message: str, *, code: str = "invalid_value") -> Fault:
    """Return the fault of a request that makes no sense: status 400."""
    return Fault(400, message, code=code)


def busy(message: str, *, retry_after_s: int = 1) -> Fault:
    """Return the fault of a server that has enough to do: status 429 with `Retry-After`."""
    headers = {"Retry-After": str(retry_after_s)}
    return Fault(429, message, code="too_many_turns", type="rate_limit_error", headers=headers)


def answer_of(error: BaseException) -> Answer:
    """Return how a failure is answered; one that nobody expected is logged with its trace."""
    if isinstance(error, Fault):
        return error.answer
    if not isinstance(error, HermesError):
        _log.error("unexpected failure\n%s", redacted_trace(error))
        what = redact(f"{type(error).__name__}: {error}")
        return Answer(
            500, SERVER, _line(f"unexpected {what}; the trace is in the server's log"), "internal"
        )
    reason = next(_REASONS[base] for base in type(error).__mro__ if base in _REASONS)
    headers = {} if reason.retry else dict(_NO_RETRY)
    wait_s = error.retry_after_s if isinstance(error, ProviderError) else None
    if wait_s is not None and reason.retry:
        headers["Retry-After"] = str(math.ceil(wait_s))
    code = reason.code or error.failure_class
    return Answer(reason.status, reason.type, _line(redact(str(error))), code, headers)


def _line(text: str) -> str:
    """Return a text as one clean line."""
    return " ".join(clean_text(text).split())
