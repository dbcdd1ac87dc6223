"""HTTP/1.1 of clients, read by httptools, with the bound on a request's head that it lacks."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD_BYTES = 64 * 1024


class Heads(HttpToolsProtocol):
    """One connection of a client; a head that does not end is refused."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._is_in_head = False
        self._has_begun = False
        self._head_bytes = 0

    def on_message_begin(self) -> None:
        """Begin to count."""
        super().on_message_begin()
        self._is_in_head = self._has_begun = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """Stop counting."""
        self._is_in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Take in what a client sends; of the piece that a head begins in nothing is counted, for
        it may hold the end of a body."""
        self._has_begun = False
        super().data_received(data)
        if self._is_in_head and not self._has_begun:
            self._head_bytes += len(data)
            if self._head_bytes > LARGEST_HEAD_BYTES:
                self._is_in_head = False
                self.send_400_response("The head of the request is too large.")
