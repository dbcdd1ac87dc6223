"""What a failed model call means: status, body and transport faults become errors of the tree.

Pure. A wire calls `fault_of_answer` for an error status or an error inside a stream, and
`fault_of_transport` for what the HTTP client raises. Read next: `overflow.py`, `retry.py`.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from agent.base.errors import (
    AuthError,
    CallTimeout,
    ContentFiltered,
    ContextOverflow,
    NetworkError,
    OverloadError,
    ProviderError,
    QuotaError,
    RateError,
    RequestRefused,
)
from agent.base.record import dataclass
from agent.base.redact import redact
from agent.providers.endpoint import bare_url
from agent.providers.overflow import overflow_numbers, says_overflow

_SHOWN_CHARS = 300
_READ_CHARS = 4_000
_MASKED_KEY = r"(?i)\b(?:sk|pk|rk|key|gsk|xai)-[\w*.-]{6,}"
_NO_OVERFLOW = frozenset({401, 402, 403, 404, 408, 429})

_WHAT: dict[type[ProviderError], tuple[str, str]] = {
    AuthError: (
        "refused the key",
        "set model.api_key to a key that this endpoint accepts",
    ),
    QuotaError: (
        "says that the quota is used up",
        "add credit or choose another model",
    ),
    RateError: ("gets too many requests", "wait a little and try again"),
    OverloadError: ("is overloaded or failing", "wait a little and try again"),
    ContentFiltered: (
        "declined because of its content rules",
        "rephrase and send it again",
    ),
    RequestRefused: ("refused the request", "check model.base_url and model.name"),
    CallTimeout: ("gave up waiting", "try again"),
    NetworkError: ("broke the connection", "check the network and try again"),
    ContextOverflow: ("says that the request is too large", "compact the conversation"),
}

_PASSING = frozenset({RateError, OverloadError, QuotaError})
"""Kinds whose Retry-After says when it is worth trying again."""

_BY_STATUS: dict[int, type[ProviderError]] = {
    401: AuthError,
    402: QuotaError,
    403: AuthError,
    408: CallTimeout,
    425: OverloadError,
    429: RateError,
}

_QUOTA = (
    r"(?i)insufficient_quota|exceeded your current quota|credit balance is too low|out of credits"
    r"|insufficient (?:credits|balance|funds)|billing_hard_limit|billing_not_active"
)
_CONTENT = (
    r"(?i)content_filter|content_policy|content management policy|requires moderation"
    r"|(?:input|prompt) was flagged|data_inspection_failed"
)
_SPOKEN: tuple[tuple[str, type[ProviderError]], ...] = (
    (r"(?i)rate.?limit|too many requests", RateError),
    (r"(?i)authenticat|invalid.api.key|permission", AuthError),
    (r"(?i)invalid_request", RequestRefused),
)

_TRANSPORT: dict[str, tuple[type[ProviderError], str]] = {
    "TimeoutException": (CallTimeout, "did not answer in time"),
    "ConnectError": (NetworkError, "cannot be reached"),
    "NetworkError": (NetworkError, "broke the connection"),
    "ProxyError": (NetworkError, "cannot be reached through the proxy"),
    "LocalProtocolError": (RequestRefused, "cannot be sent this request"),
    "UnsupportedProtocol": (RequestRefused, "has an address that is not http or https"),
    "ProtocolError": (NetworkError, "does not speak HTTP rightly, or hung up"),
    "error": (NetworkError, "sent a body that cannot be decoded"),
    "ConnectionNotAvailable": (NetworkError, "lost its connection"),
}


@dataclass(frozen=True)
class Complaint:
    """What an error body says: its text for people, its codes, and its fields."""

    text: str
    codes: str
    fields: Mapping[str, Any]

    @property
    def status(self) -> int | None:
        """The HTTP status that the body itself names, as errors inside a stream do."""
        for name in ("code", "status", "status_code"):
            value = self.fields.get(name)
            if isinstance(value, str) and value.isdecimal():
                value = int(value)
            if isinstance(value, int) and 400 <= value <= 599:
                return value
        return None


def read_complaint(body: bytes) -> Complaint:
    """Return what an error body of any shape says."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        text = body[:_READ_CHARS].decode("utf-8", "replace").strip()
        return Complaint("an HTML page" if text.startswith("<") else text, "", {})
    return complaint_of(parsed)


def complaint_of(parsed: Any) -> Complaint:
    """Return what a parsed error says: `{"error": {...}}`, a bare object, a list of one, a text."""
    if isinstance(parsed, list):
        parsed = parsed[0] if parsed else {}
    error = parsed.get("error") or parsed if isinstance(parsed, dict) else parsed
    if not isinstance(error, dict):
        return Complaint(str(error), "", {})
    said = [error.get(name) for name in ("message", "detail", "msg")]
    if isinstance(parsed, dict) and not any(said):
        said.append(parsed.get("message"))
    metadata = error.get("metadata")
    if isinstance(metadata, dict):
        said.append(metadata.get("raw"))
    texts = [item if isinstance(item, str) else _dump(item) for item in said if item]
    codes = " ".join(str(error.get(name, "")) for name in ("code", "type", "status", "param"))
    return Complaint(": ".join(texts) or codes.strip(), codes, error)


def _dump(value: Any) -> str:
    return orjson.dumps(value).decode()


def fault_of_answer(
    status: int | None,
    complaint: Complaint,
    *,
    headers: Mapping[str, str],
    route: str,
    key: str,
) -> ProviderError:
    """Return the error for an answer with an error status, or for an error inside a stream.

    `status` is None inside a stream; then the error's own code decides, then its words.
    """
    status = complaint.status if status is None else status
    kind = _kind_of_answer(status, complaint)
    said = one_line(complaint.text or headers_say(headers), key)
    shown = "" if status is None else f" ({status})"
    what, hint = _WHAT[kind]
    wait_s = retry_after_s(headers)
    if wait_s and kind in _PASSING:
        hint = f"try again in {in_words(wait_s)}"
    message = f"{route} {what}{shown}{': ' if said else ''}{said}; {hint}"
    if kind is ContextOverflow:
        request_tokens, limit_tokens = overflow_numbers(complaint.text, complaint.fields)
        return ContextOverflow(
            message,
            route=route,
            status=status,
            request_tokens=request_tokens,
            limit_tokens=limit_tokens,
        )
    return kind(message, route=route, status=status, retry_after_s=wait_s)


def _kind_of_answer(status: int | None, complaint: Complaint) -> type[ProviderError]:
    words = f"{complaint.codes} {complaint.text}"
    if status == 413 or (status not in _NO_OVERFLOW and says_overflow(words)):
        return ContextOverflow
    if re.search(_QUOTA, words):
        return QuotaError
    if status != 429 and re.search(_CONTENT, words):
        return ContentFiltered
    if status is None:
        spoken = (kind for pattern, kind in _SPOKEN if re.search(pattern, words))
        return next(spoken, OverloadError)
    if status >= 500:
        return OverloadError
    return _BY_STATUS.get(status, RequestRefused)


def headers_say(headers: Mapping[str, str]) -> str:
    """Return where a redirect leads, else nothing."""
    location = headers.get("location", "")
    return f"it redirects to {bare_url(location)}" if location else ""


def fault_of_transport(error: Exception, *, route: str, key: str) -> ProviderError:
    """Return the error for an exception of the HTTP client.

    Raises: LookupError for an exception that is not one of the client's.
    """
    for base in type(error).__mro__:
        if base.__name__ in _TRANSPORT:
            kind, what = _TRANSPORT[base.__name__]
            said = one_line(str(error), key)
            _what, hint = _WHAT[kind]
            return kind(f"{route} {what}{': ' if said else ''}{said}; {hint}", route=route)
    raise LookupError(f"{type(error).__name__} is not mapped to an error of ours")


def is_early_end(fault: ProviderError) -> bool:
    """Return whether the server closed the connection inside a body, but in good order."""
    return type(fault.__cause__).__name__ == "RemoteProtocolError"


def unreadable_answer(said: str, *, route: str, key: str) -> NetworkError:
    """Return the error for an answer with a good status that is no answer of this wire."""
    shown = one_line(said, key)
    return NetworkError(
        f"{route} sent an answer that cannot be read: {shown!r}; check model.base_url",
        route=route,
    )


def one_line(text: str, key: str) -> str:
    """Return `text` on one line, shortened, without the key or any other secret it may echo."""
    text = text[:_READ_CHARS]
    if key:
        text = text.replace(key, "[key]")
    text = " ".join(redact(re.sub(_MASKED_KEY, "[key]", text)).split())
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a provider asks to wait, None when it does not say."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "").strip()
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        at = datetime.strptime(value, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    except ValueError:
        return None
    return max(0.0, at.timestamp() - time.time())


def in_words(seconds: float) -> str:
    """Return a time to wait as people say it, rounded up: `7 s`, `20 min`, `3 h`."""
    for size, unit in ((3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{math.ceil(seconds / size)} {unit}"
    return f"{math.ceil(seconds)} s"


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < 1e9 else None
