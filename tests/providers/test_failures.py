"""Every way a call can fail has its error, and no message shows a key."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import httpcore2
import orjson
import pytest
import time_machine

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
from agent.providers.failures import (
    complaint_of,
    fault_of_answer,
    fault_of_transport,
    read_complaint,
    retry_after_s,
)

ROUTE = "m at https://host/v1"
KEY = "sk-or-v1-0123456789abcdef"


def fault(
    status: int | None, error: Any, headers: Mapping[str, str] | None = None
) -> ProviderError:
    complaint = complaint_of({"error": error})
    return fault_of_answer(status, complaint, headers=headers or {}, route=ROUTE, key=KEY)


# -- status -------------------------------------------------------------------------------------
EXPECTED = {
    401: AuthError,
    402: QuotaError,
    403: AuthError,
    408: CallTimeout,
    413: ContextOverflow,
    425: OverloadError,
    429: RateError,
}


@pytest.mark.parametrize("status", range(400, 600))
def test_every_error_status_has_its_error(status: int) -> None:
    error = fault(status, {"message": "no"})
    kind = EXPECTED.get(status, OverloadError if status >= 500 else RequestRefused)
    assert type(error) is kind
    assert (error.route, error.status) == (ROUTE, status)
    assert str(error).startswith(f"{ROUTE} ")
    assert f"({status}): no; " in str(error)
    assert "\n" not in str(error)


SPOKEN = {
    "quota in a 429": (429, {"message": "x", "code": "insufficient_quota"}, QuotaError),
    "quota in words": (429, "You exceeded your current quota, please check", QuotaError),
    "credit in a 400": (400, "Your credit balance is too low to access the API", QuotaError),
    "tokens a minute": (
        429,
        {"message": "Request too large: context window of minute", "code": "rate_limit_exceeded"},
        RateError,
    ),
    "content filter": (
        400,
        {"message": "triggering Azure's content management policy", "code": "content_filter"},
        ContentFiltered,
    ),
    "moderation": (403, "m requires moderation and your input was flagged", ContentFiltered),
    "overflow in a 500": (500, "the context length of the model was exceeded", ContextOverflow),
    "model not found": (404, "The model `context length` does not exist", RequestRefused),
    "in a stream, numbered": (None, {"message": "x", "code": 429}, RateError),
    "in a stream, numbered as text": (None, {"message": "x", "code": "503"}, OverloadError),
    "in a stream, rate": (None, {"message": "x", "type": "rate_limit_error"}, RateError),
    "in a stream, key": (None, {"message": "x", "type": "authentication_error"}, AuthError),
    "in a stream, wrong": (None, {"message": "x", "type": "invalid_request_error"}, RequestRefused),
    "in a stream, unnamed": (None, "upstream went away", OverloadError),
}


@pytest.mark.parametrize(("status", "error", "kind"), SPOKEN.values(), ids=SPOKEN.keys())
def test_words_tell_errors_of_one_status_apart(
    status: int | None, error: Any, kind: type[ProviderError]
) -> None:
    assert type(fault(status, error)) is kind


def test_a_redirect_says_where_it_leads() -> None:
    headers = {"location": "https://user:pw@other/v1?key=1"}
    error = fault_of_answer(307, read_complaint(b""), headers=headers, route=ROUTE, key=KEY)
    assert type(error) is RequestRefused
    assert "it redirects to https://other/v1; check model.base_url" in str(error)


BODIES = {
    "object": (b'{"error":{"message":"why"}}', "why"),
    "text": (b'{"error":"why"}', "why"),
    "bare": (b'{"message":"why","code":3}', "why"),
    "detail": (b'{"detail":"why"}', "why"),
    "detail of objects": (b'{"detail":[{"msg":"why"}]}', '[{"msg":"why"}]'),
    "list": (b'[{"error":{"message":"why"}}]', "why"),
    "of an upstream": (
        b'{"error":{"message":"Provider returned error","metadata":{"raw":"why"}}}',
        "Provider returned error: why",
    ),
    "plain": (b"why\n", "why"),
    "page": (b"<html>", "an HTML page"),
    "only codes": (b'{"error":{"code":"why"}}', "why"),
    "empty list": (b"[]", ""),
    "nothing": (b"", ""),
}


@pytest.mark.parametrize(("body", "text"), BODIES.values(), ids=BODIES.keys())
def test_error_bodies_of_any_shape_are_read(body: bytes, text: str) -> None:
    assert read_complaint(body).text == text


@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect API key provided: {KEY}.",
        "Incorrect API key provided: sk-proj-***************abcd.",
        "bad\nkey gsk-12345678",
    ],
)
def test_no_message_shows_a_key(text: str) -> None:
    message = str(fault(401, {"message": text}))
    assert "[key]" in message
    assert not any(part in message for part in ("0123456789", "abcd", "12345678", "\n"))


def test_no_message_shows_a_secret_that_the_provider_echoes() -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    message = str(fault(400, {"message": f"invalid value: 'push with {token}'"}))
    assert token not in message
    assert "[REDACTED:" in message


def test_long_complaints_are_shortened() -> None:
    assert len(str(fault(500, "word " * 1_000))) < 500


# -- overflow -----------------------------------------------------------------------------------
OVERFLOWS = {
    "OpenAI": (
        (
            "This model's maximum context length is 128000 tokens. However, your messages resulted "
            "in 130001 tokens. Please reduce the length of the messages."
        ),
        130_001,
        128_000,
    ),
    "OpenAI without numbers": (
        "Your input exceeds the context window of this model.",
        None,
        None,
    ),
    "OpenRouter": (
        (
            "This endpoint's maximum context length is 131072 tokens. However, you requested about "
            "150000 tokens (140000 of text input, 10000 in the output)."
        ),
        150_000,
        131_072,
    ),
    "vLLM": (
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5000 "
            "tokens (4000 in the messages, 1000 in the completion)."
        ),
        5_000,
        4_096,
    ),
    "vLLM, newer": (
        (
            "'max_tokens' is too large: 1000. This model's maximum context length is 4096 tokens "
            "and your request has 3500 input tokens"
        ),
        3_500,
        4_096,
    ),
    "vLLM, prompt": (
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        5_000,
        4_096,
    ),
    "llama.cpp": (
        "request (9031 tokens) exceeds the available context size (8192 tokens), try increasing it",
        9_031,
        8_192,
    ),
    "Anthropic": ("prompt is too long: 210,000 tokens > 200,000 maximum", 210_000, 200_000),
    "Anthropic with output": (
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease",
        210_000,
        200_000,
    ),
    "Google": (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        1_200_000,
        1_048_576,
    ),
    "Copilot": ("prompt token count of 130000 exceeds the limit of 128000", 130_000, 128_000),
    "Mistral": (
        (
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 "
            "maximum context length"
        ),
        40_000,
        32_768,
    ),
    "xAI": (
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        537_812,
        131_072,
    ),
    "TGI": (
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens",
        5_000,
        4_096,
    ),
    "Bedrock": ("Input is too long for requested model.", None, None),
    "Groq": ("Please reduce the length of the messages or completion.", None, None),
    "limit only": ("the maximum context length of 8192 is exceeded", None, 8_192),
}


@pytest.mark.parametrize(
    ("text", "request_tokens", "limit_tokens"), OVERFLOWS.values(), ids=OVERFLOWS.keys()
)
def test_overflow_is_recognised_with_its_numbers(
    text: str, request_tokens: int | None, limit_tokens: int | None
) -> None:
    error = fault(400, {"message": text})
    assert isinstance(error, ContextOverflow)
    assert (error.request_tokens, error.limit_tokens) == (request_tokens, limit_tokens)
    assert error.status == 400


def test_numbers_of_the_error_object_count_first() -> None:
    body = {"type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8, "message": "x"}
    error = fault(400, body)
    assert isinstance(error, ContextOverflow)
    assert (error.request_tokens, error.limit_tokens) == (9, 8)


def test_overflow_is_recognised_by_its_code_alone() -> None:
    assert isinstance(fault(400, {"code": "context_length_exceeded"}), ContextOverflow)


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
        "messages.1: all messages must have non-empty content",
        "Invalid schema for function 'context'",
    ],
)
def test_other_refusals_are_no_overflow(text: str) -> None:
    assert type(fault(400, text)) is RequestRefused


# -- transport ----------------------------------------------------------------------------------
def exceptions_of(module: Any) -> list[type[Exception]]:
    found = [value for _name, value in inspect.getmembers(module, inspect.isclass)]
    return [kind for kind in found if issubclass(kind, Exception)]


def make(kind: type[Exception]) -> Exception:
    """Return an exception of any class, whatever its constructor asks for."""
    error = kind.__new__(kind)
    Exception.__init__(error, "why")
    return error


@pytest.mark.parametrize(
    "kind", [*exceptions_of(httpcore2), zlib.error], ids=lambda kind: str(kind)
)
def test_every_exception_of_the_client_has_its_error(kind: type[Exception]) -> None:
    error = fault_of_transport(make(kind), route=ROUTE, key=KEY)
    assert isinstance(error, ProviderError)
    assert str(error).startswith(f"{ROUTE} ")


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (httpcore2.ConnectTimeout("x"), CallTimeout),
        (httpcore2.ConnectError("x"), NetworkError),
        (httpcore2.ReadError("x"), NetworkError),
        (httpcore2.RemoteProtocolError("x"), NetworkError),
        (httpcore2.LocalProtocolError("x"), RequestRefused),
        (httpcore2.UnsupportedProtocol("x"), RequestRefused),
    ],
)
def test_transport_faults_are_told_apart(raised: Exception, kind: type[ProviderError]) -> None:
    assert type(fault_of_transport(raised, route=ROUTE, key=KEY)) is kind


def test_an_exception_of_somebody_else_is_not_swallowed() -> None:
    with pytest.raises(LookupError, match="ZeroDivisionError is not mapped"):
        fault_of_transport(ZeroDivisionError(), route=ROUTE, key=KEY)


def test_a_key_in_a_transport_fault_is_not_shown() -> None:
    raised = httpcore2.LocalProtocolError(f"Illegal header value b'Bearer {KEY}'")
    assert KEY not in str(fault_of_transport(raised, route=ROUTE, key=KEY))


# -- Retry-After --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:10 GMT"}, 10.0),
        ({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read(headers: dict[str, str], seconds: float | None) -> None:
    with time_machine.travel(datetime(2026, 11, 30, 12, 0, tzinfo=UTC), tick=False):
        assert retry_after_s(headers) == seconds


@pytest.mark.parametrize(
    ("asked", "said"),
    [("0.2", "1 s"), ("7", "7 s"), ("119", "119 s"), ("1200", "20 min"), ("7201", "3 h")],
)
def test_a_refusal_says_when_to_try_again(asked: str, said: str) -> None:
    message = str(fault(429, "slow down", {"retry-after": asked}))
    assert message.endswith(f"gets too many requests (429): slow down; try again in {said}")


def test_only_what_passes_says_when_to_try_again() -> None:
    assert str(fault(401, "bad key", {"retry-after": "7"})).endswith(
        "set model.api_key to a key that this endpoint accepts"
    )
    assert str(fault(429, "slow down")).endswith("wait a little and try again")


def test_retry_after_is_on_the_error() -> None:
    assert fault(429, "slow down", {"retry-after": "7"}).retry_after_s == 7.0


def test_an_error_body_of_bytes_keeps_its_fields() -> None:
    body = orjson.dumps({"error": {"message": "m", "code": 400, "n_ctx": 5}})
    assert read_complaint(body).fields["n_ctx"] == 5
