"""What a stub server is scripted with (`Reply`), what it remembers (`RecordedRequest`) and what a
wire shape gives it (`Shape`). Read next: `stub_server.py`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from agent.base.record import dataclass


@dataclass(frozen=True)
class Reply:
    """One answer, faults included. The default is the text `ok` with finish `stop`."""

    text: str | None = "ok"
    """Answer text; None sends `content: null`."""
    reasoning: str = ""
    """Reasoning text, sent before the answer under `reasoning_key`."""
    reasoning_key: str = "reasoning_content"
    """Name of the reasoning field; servers differ (`reasoning_content`, `reasoning`, and the signed
    `reasoning_details`). Wires with one name only take no notice."""
    tool_calls: Sequence[Mapping[str, Any]] = ()
    """Calls in the OpenAI message shape, as `builders.call` makes them."""
    finish: str | None = "auto"
    """Finish reason; `auto` is `tool_calls` or `stop`; None sends no reason at all."""
    usage: Mapping[str, Any] | Literal["auto"] | None = "auto"
    """`auto` counts with the strict counter; None sends no usage."""
    status: int = 200
    """HTTP status; anything but 200 sends `error` instead of an answer."""
    error: str | Mapping[str, Any] = ""
    """Message of the error, or the fields of the error object."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further response headers, such as `Retry-After`."""
    before_first_byte_s: float = 0.0
    """Silence before the first byte of the body; `math.inf` waits for `release`."""
    headers_first: bool = True
    """Whether status line and headers go out before that silence."""
    chunk_delay_s: float = 0.0
    """Silence before each further frame of a stream."""
    stall_after_chars: int | None = None
    """Fall silent for `stall_s` once this many characters of the answer were sent."""
    stall_s: float = math.inf
    """Length of that silence."""
    comments_every_s: float = 0.0
    """Send a comment line this often during any silence of a stream; 0 sends none."""
    release: threading.Event | None = None
    """When set, every silence of this reply ends at once."""
    chunks: Sequence[str] | None = None
    """The exact text pieces of a streamed answer instead of a few characters each."""
    reset_after_chars: int | None = None
    """Reset the connection once this many characters of the answer were sent; of an answer that
    is not streamed, once this many bytes of the body were."""
    close_without_finish: bool = False
    """Send the whole text, then end the body by closing: no finish frame, no `[DONE]`, and no
    length or chunk framing that would tell the client."""
    ignore_stream: bool = False
    """Answer whole although a stream was asked for."""
    choices_empty: bool = False
    """Answer with an empty list of choices."""
    raw_body: bytes | None = None
    """Send these bytes as the body instead of anything above; type by `headers`."""

    @property
    def whole_text(self) -> str:
        """The answer text, whichever way it was given; empty for None."""
        return "".join(self.chunks) if self.chunks is not None else self.text or ""


@dataclass
class RecordedRequest:
    """One request as it arrived and what became of it.

    Units: `*_at` are `time.monotonic()` of this process. `done` is set when the answer was sent
    or given up; `client_closed_at` is set only when the client left before that.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    raw: bytes
    arrived_at: float
    body: dict[str, Any] = field(default_factory=dict)
    """The parsed JSON object; empty when there was none."""
    status: int | None = None
    refusal: str = ""
    """Why it was refused, by strict mode or as unreadable; empty when it was not."""
    client_closed_at: float | None = None
    finished_at: float | None = None
    memory: dict[str, Any] = field(default_factory=dict)
    """What the server remembers from request to request, the same for all of them; a shape keeps
    there what a real server keeps, such as its prompt cache."""
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def model(self) -> str:
        """The model id that was asked for."""
        return str(self.body.get("model", ""))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages that were sent."""
        return list(self.body.get("messages", []))


@dataclass(frozen=True)
class Refusal:
    """Why a strict server does not answer: status 400 with an error object."""

    message: str
    code: str = "invalid_request_error"

    def as_reply(self) -> Reply:
        """Return the answer that a strict provider would give."""
        return Reply(status=400, error={"message": self.message, "code": self.code})


@dataclass(frozen=True)
class Strictness:
    """Limits of strict mode. `window_tokens` counts messages and tools; 0 means no limit."""

    window_tokens: int = 128_000
    max_body_bytes: int = 64_000_000


@dataclass(frozen=True)
class Frame:
    """One piece of a streamed body and the characters of answer text or reasoning in it."""

    data: bytes
    chars: int = 0


@dataclass(frozen=True)
class Shape:
    """One wire: how requests are checked and answers are written.

    `check` returns why a strict provider refuses; `stream` gives frames, `whole` one JSON body,
    `error` an error body. The last argument of each is the number of the request.
    """

    check: Callable[[RecordedRequest, Strictness], Refusal | None]
    stream: Callable[[Reply, RecordedRequest, int], Sequence[Frame]]
    whole: Callable[[Reply, RecordedRequest, int], bytes]
    error: Callable[[Reply], bytes]
