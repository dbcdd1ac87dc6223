"""What the proxy reads of an answer on the side is kept whatever stands between its events."""

from __future__ import annotations

from agent.server.proxy_reply import ReplyReader


def test_events_that_say_nothing_do_not_end_the_reading() -> None:
    reader = ReplyReader("m", "m at h")
    reader.feed(b'data: {"choices":[{"delta":{"content":"one"}}]}\n\nevent: beat\ndata:\n\n')
    reader.feed(b': note\n\ndata: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n')
    message = reader.message()
    assert message is not None
    assert (message["content"], message["_finish_reason"]) == ("one", "stop")
