"""A model for the demo: answers turns with stored texts, and lets a real model do the rest for a
limited time; what it does not finish is replaced by a stored text, and that is said.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from agent.base.cancel import CancelToken
from agent.base.errors import CallCancelled
from agent.base.record import dataclass
from agent.providers.protocol import (
    CallWatch,
    Delta,
    Limits,
    ModelReply,
    ModelRequest,
    Provider,
    TokenUsage,
)


@dataclass
class Script:
    """What is stored: `answer` of the next turn (None lets the model answer), and the texts that
    stand in for what the model does not finish, used in order."""

    summaries: list[str]
    live_answer: str
    answer: str | None = None


class Replay:
    """A provider over a real one. `on_note` is told, in a sentence, when a stored text stands in.

    Units: `limit_s` is the time that the real model gets for one call.
    """

    def __init__(
        self, real: Provider, script: Script, limit_s: float, on_note: Callable[[str], None]
    ) -> None:
        self._real = real
        self._script = script
        self._limit_s = limit_s
        self._on_note = on_note

    @property
    def model(self) -> str:
        return self._real.model

    @property
    def route(self) -> str:
        return self._real.route

    @property
    def window_tokens(self) -> int:
        return self._real.window_tokens

    @property
    def supports_tools(self) -> bool:
        return self._real.supports_tools

    @property
    def one_slot(self) -> bool:
        return self._real.one_slot

    def complete(self, request: ModelRequest, *, limits: Limits, watch: CallWatch) -> ModelReply:
        """Answer from the script or from the model; only turns begin with a system message."""
        script = self._script
        is_turn = request.messages[0]["role"] == "system"
        if is_turn and script.answer is not None:
            text, script.answer = script.answer, None
            return _stored(text, watch)
        reply = self._ask(request, limits, watch)
        if reply is not None and reply.finish_reason == "stop":
            return reply
        if is_turn:
            text = script.live_answer
        else:
            text = script.summaries.pop(0) if len(script.summaries) > 1 else script.summaries[0]
        what = "answer" if is_turn else "summary"
        why = "ran into its length limit" if reply else f"was not ready after {self._limit_s:g} s"
        self._on_note(f"the model's {what} {why}: a stored one stands in")
        return _stored(text, watch)

    def _ask(self, request: ModelRequest, limits: Limits, watch: CallWatch) -> ModelReply | None:
        """Return the model's reply, or None when time is up. Raises: CallCancelled by a stop."""
        hurry = CancelToken()
        forget = watch.cancel.on_cancel(hurry.cancel)
        timer = threading.Timer(self._limit_s, hurry.cancel)
        timer.start()
        try:
            return self._real.complete(request, limits=limits, watch=replace(watch, cancel=hurry))
        except CallCancelled:
            if watch.cancel.cancelled:
                raise
            return None
        finally:
            timer.cancel()
            timer.join()
            forget()

    def price(self, usage: TokenUsage) -> float | None:
        return self._real.price(usage)

    def close(self) -> None:
        self._real.close()


def _stored(text: str, watch: CallWatch) -> ModelReply:
    if watch.on_delta is not None:
        watch.on_delta(Delta(text=text))
    return ModelReply({"role": "assistant", "content": text}, "stop", None, "stored text")
