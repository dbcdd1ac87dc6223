"""Side-model calls: what a summary answer is worth, progress, limits and cancel.

Bound: a cancel is heard within 250 ms; asserted at four times that.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from agent.auxiliary_client import (
    AuxiliaryClient,
    AuxiliaryExplicitCancellation,
    SummaryText,
    without_thoughts,
)
from agent.base.cancel import CancelToken
from agent.base.errors import (
    AuthError,
    CallStalled,
    CallTimeout,
    HermesError,
    NetworkError,
    OverloadError,
    QuotaError,
    RateError,
    RequestRefused,
    SummaryDeclined,
    SummaryEmpty,
    SummaryReasoningOnly,
    SummaryTruncated,
)
from agent.providers.chat_completions import ChatCompletions
from agent.providers.protocol import Limits, TokenUsage
from agent.testing.clock import FakeClock
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from tests.best_of import best_of
from tests.providers.calls import ANSWER, Heard
from tests.providers.conftest import call_clock, full_port, serve
from tests.providers.raw_server import Serve
from tests.running import Running

__all__ = ["call_clock", "full_port", "serve"]

CANCEL_BOUND_S = 1.0
PROMPT = [{"role": "user", "content": "Summarise: we planted beans."}]
GOOD = "The user planted beans in the garden."


class Fence:
    """Counts signs of life."""

    def __init__(self, heard: Heard | None = None) -> None:
        self.token = CancelToken()
        self.touched = threading.Semaphore(0)
        self.touches = 0
        self._heard = heard

    def touch_progress(self) -> None:
        self.touches += 1
        self.touched.release()
        if self._heard is not None:
            self._heard.hear(0)


Open = Callable[..., AuxiliaryClient]


@pytest.fixture
def client(stub: StubModelServer) -> Iterator[Open]:
    """A function that opens a client of the stub."""
    provider = ChatCompletions(
        base_url=stub.base_url, model="s", window_tokens=20_000, prices=(("s", 1.0, 2.0),)
    )

    def open_client(**limits: float) -> AuxiliaryClient:
        given = {"first_byte_s": 10.0, "idle_s": 10.0, "total_s": 15.0} | limits
        return AuxiliaryClient(provider, Limits(**given))  # type: ignore[arg-type]

    yield open_client
    provider.close()


def summarise(client: AuxiliaryClient, fence: Fence | None = None) -> SummaryText:
    return client.summarise(PROMPT, max_tokens=300, fence=fence or Fence())


# -- answers ------------------------------------------------------------------------------------
def test_a_summary_comes_with_its_usage_and_cost(client: Open, stub: StubModelServer) -> None:
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 500_000}
    stub.script([Reply(text=GOOD, usage=usage)])
    heard: list[str] = []
    fence = Fence()
    summary = client().summarise(PROMPT, max_tokens=300, fence=fence, on_delta=heard.append)
    assert summary == SummaryText(GOOD, "stop", TokenUsage(1_000_000, 500_000), 2.0)
    assert "".join(heard) == GOOD
    assert fence.touches > 1
    assert stub.requests[0].body["max_tokens"] == 300
    assert stub.requests[0].body["stream"] is True


def test_without_usage_there_is_no_cost(client: Open, stub: StubModelServer) -> None:
    stub.script([Reply(text=GOOD, usage=None)])
    assert summarise(client()) == SummaryText(GOOD, "stop", None, None)


def test_the_client_tells_model_route_and_window(stub: StubModelServer) -> None:
    provider = ChatCompletions(base_url=stub.base_url, model="s", window_tokens=20_000)
    own, given = AuxiliaryClient(provider, Limits()), AuxiliaryClient(provider, Limits(), 9_000)
    assert (own.model, own.route, own.window_tokens) == ("s", f"s at {stub.base_url}", 20_000)
    assert given.window_tokens == 9_000


UNUSABLE = {
    "empty": (Reply(text=""), SummaryEmpty),
    "null": (Reply(text=None), SummaryEmpty),
    "white space": (Reply(text="   \n"), SummaryEmpty),
    "no choices": (Reply(choices_empty=True), SummaryEmpty),
    "reasoning only": (Reply(text="", reasoning="long thought"), SummaryReasoningOnly),
    "reasoning by another name": (
        Reply(text=None, reasoning="long thought", reasoning_key="reasoning"),
        SummaryReasoningOnly,
    ),
    "thought in tags": (Reply(text="<think>we should...</think>\n "), SummaryReasoningOnly),
    "thought without end": (Reply(text="<think>we should..."), SummaryReasoningOnly),
    "output limit": (Reply(text=GOOD, finish="length"), SummaryTruncated),
    "output limit by another name": (Reply(text=GOOD, finish="max_tokens"), SummaryTruncated),
    "no finish frame": (Reply(text=GOOD, close_without_finish=True), SummaryTruncated),
    "no finish reason": (Reply(text=GOOD, finish=None), SummaryTruncated),
    "content filter": (Reply(text="", finish="content_filter"), SummaryDeclined),
    "declined by status": (
        Reply(status=400, error={"message": "no", "code": "content_filter"}),
        SummaryDeclined,
    ),
}


@pytest.mark.parametrize("ignore_stream", [False, True], ids=["streamed", "whole"])
@pytest.mark.parametrize(("reply", "kind"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_d09_d10_a_text_that_is_no_summary_is_a_typed_failure(
    client: Open,
    stub: StubModelServer,
    reply: Reply,
    kind: type[HermesError],
    ignore_stream: bool,
) -> None:
    stub.script([replace(reply, ignore_stream=ignore_stream and not reply.close_without_finish)])
    with pytest.raises(HermesError) as caught:
        summarise(client())
    assert type(caught.value) is kind
    assert len(stub.requests) == 1


THOUGHTS = {
    "before": ("<think>hm</think>\n\nText", "Text"),
    "several": ("<think>a</think> <Thinking>b</Thinking>Text", "Text"),
    "end only": ("so the user wants\n</think>\n\nText", "Text"),
    "none": ("  Text ", "Text"),
    "a tag that is spoken of": ("The tag `</think>` closes it.", "The tag `</think>` closes it."),
    "later thoughts stay": ("Text <think>x</think>", "Text <think>x</think>"),
    "only": ("<think>x</think>", ""),
}


@pytest.mark.parametrize(("text", "kept"), THOUGHTS.values(), ids=THOUGHTS.keys())
def test_thoughts_before_the_text_are_taken_off(text: str, kept: str) -> None:
    assert without_thoughts(text) == kept


# -- faults -------------------------------------------------------------------------------------
FAULTS = {
    "401": (Reply(status=401, error="bad key"), AuthError, 1),
    "402": (Reply(status=402, error="pay"), QuotaError, 1),
    "404": (Reply(status=404, error="no model"), RequestRefused, 1),
    "429": (Reply(status=429, error="slow"), RateError, 2),
    "500": (Reply(status=500, error="broken"), OverloadError, 2),
    "reset in mid body": (Reply(text=GOOD, reset_after_chars=4), NetworkError, 1),
}


@pytest.mark.parametrize(("reply", "kind", "calls"), FAULTS.values(), ids=FAULTS.keys())
def test_d11_a_fault_keeps_its_cause_and_its_route(
    client: Open, stub: StubModelServer, reply: Reply, kind: type[HermesError], calls: int
) -> None:
    stub.script([], then=reply)
    with pytest.raises(HermesError, match=f"s at {stub.base_url} ") as caught:
        summarise(client())
    assert type(caught.value) is kind
    assert len(stub.requests) == calls


def test_d11_a_name_that_does_not_resolve_is_a_network_fault() -> None:
    provider = ChatCompletions(base_url="http://gone.invalid/v1", model="s", window_tokens=8_192)
    with pytest.raises(NetworkError, match="cannot be reached"):
        summarise(AuxiliaryClient(provider, Limits()))


# -- limits (D05) -------------------------------------------------------------------------------
def test_d05_a_slow_first_token_is_no_stall(client: Open, stub: StubModelServer) -> None:
    """The answer comes in one piece, so that there is no silence inside it."""
    kind = {"content-type": "text/event-stream"}
    stub.script([Reply(raw_body=ANSWER, headers=kind, before_first_byte_s=0.6)])
    assert summarise(client(idle_s=0.3)).text == "hi"


def test_d05_a_whole_answer_is_bound_by_the_total_limit(
    client: Open, stub: StubModelServer
) -> None:
    stub.script([Reply(text=GOOD, ignore_stream=True, before_first_byte_s=0.6)])
    assert summarise(client(idle_s=0.3)).text == GOOD


def test_d05_comment_lines_are_progress(serve: Serve, call_clock: FakeClock) -> None:
    heard = Heard(call_clock, seconds=9)
    server = serve(heard.comments_then(ANSWER, count=6))
    provider = ChatCompletions(base_url=server.base_url, model="s", window_tokens=20_000)
    fence = Fence(heard)
    limits = Limits(first_byte_s=10, idle_s=10, total_s=0)
    assert summarise(AuxiliaryClient(provider, limits), fence).text == "hi"
    assert fence.touches == 7
    provider.close()


SILENCES = {
    "first byte": (Reply(before_first_byte_s=math.inf), {"first_byte_s": 0.2}, CallTimeout),
    "idle": (Reply(text=GOOD, stall_after_chars=4), {"idle_s": 0.2}, CallStalled),
    "total": (Reply(text=GOOD * 50, chunk_delay_s=0.05), {"total_s": 0.2}, CallTimeout),
}


@pytest.mark.parametrize(("reply", "limits", "kind"), SILENCES.values(), ids=SILENCES.keys())
def test_each_limit_ends_the_call_by_itself(
    client: Open,
    stub: StubModelServer,
    reply: Reply,
    limits: dict[str, float],
    kind: type[HermesError],
) -> None:
    stub.script([], then=reply)
    with pytest.raises(HermesError) as caught:
        summarise(client(**limits))
    assert type(caught.value) is kind


# -- cancel -------------------------------------------------------------------------------------
PHASES = {
    "before headers": Reply(before_first_byte_s=math.inf, headers_first=False),
    "before the first byte": Reply(before_first_byte_s=math.inf),
    "in mid stream": Reply(text=GOOD, stall_after_chars=4),
    "before another try": Reply(status=429, headers={"Retry-After": "10"}),
}


@pytest.mark.parametrize("reply", PHASES.values(), ids=PHASES.keys())
def test_a_cancel_ends_the_call_and_closes_the_socket(
    client: Open, stub: StubModelServer, reply: Reply
) -> None:
    stub.script([], then=reply)
    begun: list[Running] = []

    def cancel_one() -> float:
        fence, asked = Fence(), client()
        begun.append(Running(lambda _watch: summarise(asked, fence), fence.token))
        request = stub.wait_for_requests(len(begun))[-1]
        if reply.stall_after_chars is not None:
            assert fence.touched.acquire(timeout=10)
        threading.Event().wait(0.05)
        ended_after_s, ended_at = begun[-1].cancel(), time.monotonic()
        assert request.done.wait(10)
        if reply.status == 200:
            assert request.client_closed_at is not None
        return max(ended_after_s, time.monotonic() - ended_at)

    assert best_of(cancel_one, CANCEL_BOUND_S) < CANCEL_BOUND_S
    assert len(stub.requests) == len(begun)


def test_a_cancel_ends_a_call_that_is_connecting(full_port: int) -> None:
    provider = ChatCompletions(
        base_url=f"http://127.0.0.1:{full_port}/v1", model="s", window_tokens=8_192
    )

    def cancel_one() -> float:
        fence, asked = Fence(), AuxiliaryClient(provider, Limits())
        call = Running(lambda _watch: summarise(asked, fence), fence.token)
        threading.Event().wait(0.1)
        return call.cancel()

    assert best_of(cancel_one, CANCEL_BOUND_S) < CANCEL_BOUND_S
    provider.close()


def test_a_fence_that_is_cancelled_already_asks_no_model(
    client: Open, stub: StubModelServer
) -> None:
    fence = Fence()
    fence.token.cancel()
    with pytest.raises(AuxiliaryExplicitCancellation):
        summarise(client(), fence)
    assert stub.requests == []


def test_a_cancel_that_comes_with_the_last_word_wins(client: Open, stub: StubModelServer) -> None:
    stub.script([Reply(text=GOOD, ignore_stream=True)])
    fence = Fence()

    def stop(_text: str) -> None:
        fence.token.cancel()

    with pytest.raises(AuxiliaryExplicitCancellation):
        client().summarise(PROMPT, max_tokens=300, fence=fence, on_delta=stop)


def test_a_stop_is_no_exception_that_retry_code_catches() -> None:
    stop = AuxiliaryExplicitCancellation()
    assert isinstance(stop, BaseException)
    assert not isinstance(stop, Exception)
    assert stop.cause == AuxiliaryExplicitCancellation.cause == "explicit_host_cancel"
