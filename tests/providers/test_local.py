"""The embedded model: the real one where it is installed, and what is said where it is not."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.base.cancel import CancelToken
from agent.base.errors import CallCancelled, CallTimeout, ContextOverflow, ModelUnavailable
from agent.base.settings import LocalSettings
from agent.providers import local
from agent.providers.local import LocalModel, Slot, model_file
from agent.providers.protocol import CallWatch, Delta, Limits, ModelReply, ModelRequest
from tests.best_of import best_of
from tests.running import Running

CANCEL_BOUND_S = 0.2
LIMITS = Limits(first_byte_s=60, idle_s=60, total_s=120)
SETTINGS = LocalSettings(context_length=4_096)


@pytest.fixture
def model() -> Iterator[LocalModel]:
    provider = LocalModel(SETTINGS)
    yield provider
    provider.close()


def request(text: str = "Say hello.", max_tokens: int = 12) -> ModelRequest:
    return ModelRequest(messages=[{"role": "user", "content": text}], max_tokens=max_tokens)


def ask(provider: LocalModel, sent: ModelRequest, watch: CallWatch | None = None) -> ModelReply:
    return provider.complete(sent, limits=LIMITS, watch=watch or CallWatch())


@pytest.mark.embedded
def test_the_real_model_answers_in_a_stream(model: LocalModel) -> None:
    deltas: list[Delta] = []
    sent = request()
    reply = ask(model, sent, CallWatch(on_delta=deltas.append))
    text = reply.message["content"]
    assert text
    assert text == "".join(delta.text for delta in deltas)
    assert reply.model == "SmolLM2-135M-Instruct"
    assert reply.usage is not None
    assert 0 < reply.usage.completion <= 12


@pytest.mark.embedded
def test_a_cancel_frees_the_real_model(model: LocalModel) -> None:
    ask(model, request())

    def cancel_one() -> float:
        """Return after how many seconds a story ended; one that was told to its end counts not."""
        story = request("Tell me a long story.", 2_000)
        call = Running(lambda watch: ask(model, story, watch))
        assert call.deltas.acquire(timeout=10)
        return call.cancel()

    assert best_of(cancel_one, CANCEL_BOUND_S) < CANCEL_BOUND_S
    assert ask(model, request(max_tokens=2)).message["content"]


@pytest.mark.embedded
def test_an_overflow_of_the_real_model_has_its_numbers(model: LocalModel) -> None:
    with pytest.raises(ContextOverflow) as caught:
        ask(model, request("hello " * 5_000))
    assert caught.value.limit_tokens == 4_096
    assert caught.value.request_tokens is not None
    assert caught.value.request_tokens > 5_000
    assert caught.value.route == "SmolLM2-135M-Instruct at embedded"


@pytest.mark.embedded
def test_equal_settings_share_one_server_until_the_last_is_closed(model: LocalModel) -> None:
    ask(model, request(max_tokens=1))
    other = LocalModel(SETTINGS)
    ask(other, request(max_tokens=1))
    assert list(local._servers) == [SETTINGS]
    other.close()
    other.close()
    assert ask(model, request(max_tokens=1)).usage is not None
    model.close()
    assert local._servers == {}


@pytest.mark.embedded
def test_a_file_that_is_no_model_says_what_to_set(tmp_path: Path) -> None:
    path = tmp_path / "junk.gguf"
    path.write_bytes(b"junk")
    provider = LocalModel(LocalSettings(model_path=str(path)))
    with pytest.raises(ModelUnavailable, match="set local.model_path to a GGUF file"):
        ask(provider, request())
    provider.close()


def test_a_file_that_is_missing_says_what_to_set() -> None:
    with pytest.raises(ModelUnavailable) as caught:
        model_file(LocalSettings(model_path="/nowhere/model.gguf"))
    assert str(caught.value) == (
        "local.model_path '/nowhere/model.gguf' is no file; set it to a GGUF file, "
        "or leave it empty and run: hermes local install"
    )


def test_a_missing_model_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "PACKAGE", "no-such-package-anywhere")
    with pytest.raises(ModelUnavailable, match="not installed; run: hermes local install"):
        ask(LocalModel(SETTINGS), request())


def test_a_missing_runtime_names_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "any.gguf"
    path.touch()
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ModelUnavailable, match="runtime .* run: hermes local install"):
        ask(LocalModel(LocalSettings(model_path=str(path))), request())


# -- the one slot -------------------------------------------------------------------------------
def wait_for_slot(slot: Slot, token: CancelToken, limit_s: float = 0) -> None:
    with slot.held(token, limit_s, "m at embedded"):
        pass


def test_a_caller_that_waits_its_turn_hears_a_cancel() -> None:
    slot = Slot()

    def cancel_one() -> float:
        call = Running(lambda watch: wait_for_slot(slot, watch.cancel))
        threading.Event().wait(0.05)
        return call.cancel()

    with slot.held(CancelToken(), 0, "m at embedded"):
        assert best_of(cancel_one, CANCEL_BOUND_S) < CANCEL_BOUND_S
    wait_for_slot(slot, CancelToken(), 1)


def test_a_caller_waits_no_longer_than_its_total_limit() -> None:
    slot = Slot()
    with slot.held(CancelToken(), 0, "m at embedded"):
        with pytest.raises(CallTimeout, match=r"m at embedded was busy .* for 0\.05 s"):
            wait_for_slot(slot, CancelToken(), 0.05)
        cancelled = CancelToken()
        cancelled.cancel()
        with pytest.raises(CallCancelled):
            wait_for_slot(slot, cancelled)


def test_one_call_at_a_time() -> None:
    slot = Slot()
    running: list[int] = []
    most: list[int] = []

    def call(number: int) -> None:
        with slot.held(CancelToken(), 0, "m at embedded"):
            running.append(number)
            most.append(len(running))
            threading.Event().wait(0.005)
            running.remove(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert most == [1] * 8
