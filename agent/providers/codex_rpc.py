"""A conversation with the Codex app-server: one process, one JSON message a line, both ways.

It knows nothing of threads and turns. Read next: `codex_app_server.py`.
"""

from __future__ import annotations

import os
import queue
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import orjson

from agent.base.errors import (
    CallCancelled,
    CallStalled,
    CallTimeout,
    ModelUnavailable,
    NetworkError,
    ProviderError,
)
from agent.providers.protocol import CallWatch, Limits
from agent.providers.text import load_json

_END_WAIT_S = 2.0
_KEPT_ERROR_CHARS = 300
_CLIENT = {"clientInfo": {"name": "hermes-continuum", "title": None, "version": "1"}}

Line = dict[str, Any]


class Refused(Exception):
    """The app-server answered a request with an error."""


class Connection:
    """One running app-server, greeted already.

    Concurrency: one exchange at a time; `close` from any thread.
    Raises: ModelUnavailable when the command cannot be run.
    """

    def __init__(self, command: str, route: str) -> None:
        self._route = route
        self._numbers = 0
        self._lines: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        self._said: list[str] = []
        self.threads: set[str] = set()
        """Ids of the threads that this process has loaded."""
        try:
            self._process = subprocess.Popen(
                shlex.split(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=os.name == "posix",
            )
        except (OSError, ValueError) as error:
            raise ModelUnavailable(
                f"{command!r} cannot be run: {error}; install it, or set model.command",
                route=route,
            ) from error
        self._readers = [
            threading.Thread(target=self._read, name="codex-out", daemon=True),
            threading.Thread(target=self._read_errors, name="codex-err", daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def greet(self, exchange: Exchange) -> None:
        """Do the handshake."""
        exchange.request("initialize", _CLIENT)
        self.send({"method": "initialized"})

    def next_number(self) -> int:
        """Return an id for a request of ours."""
        self._numbers += 1
        return self._numbers

    def send(self, line: Mapping[str, Any]) -> None:
        """Write one message. Raises: NetworkError when the process has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(orjson.dumps(line) + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise self.ended() from error

    def wake(self, line: Line | None = None) -> None:
        """End a wait for a message, with one of our own."""
        self._lines.put(line or {})

    def receive(self, timeout_s: float | None) -> Line | None:
        """Return the next message, {} when woken, None when none came in time.

        Raises: NetworkError when the process has ended.
        """
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if line is None:
            self._lines.put(None)
            raise self.ended()
        return line

    def ended(self) -> NetworkError:
        """Return the error for a process that is not there any more, with its last words."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_WAIT_S)
            self._readers[-1].join(_END_WAIT_S)
        said = " ".join("".join(self._said).split())[-_KEPT_ERROR_CHARS:]
        return NetworkError(
            f"{self._route}: the app-server ended (exit code {self._process.poll()})"
            f"{': ' if said else ''}{said}; send the message again",
            route=self._route,
        )

    def close(self) -> None:
        """End the process and its readers. Idempotent."""
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(_END_WAIT_S / 2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join(_END_WAIT_S)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            with suppress(ValueError):
                line = load_json(raw)
                if isinstance(line, dict):
                    self._lines.put({**line, "_size": len(raw)})
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for raw in self._process.stderr:
            self._said = [*self._said[-4:], raw.decode("utf-8", "replace")]


class Exchange:
    """One call's use of a connection: its limits, its cancel, and what arrives meanwhile.

    A context manager in the calling thread; `on_cancel` is what a cancel says to the server.
    """

    def __init__(
        self, connection: Connection, limits: Limits, watch: CallWatch, route: str
    ) -> None:
        self.connection = connection
        self.watch = watch
        self._limits = limits
        self._route = route
        self._started = time.monotonic()
        self._answered = False
        self._waiting: list[Line] = []
        self._forget = watch.cancel.on_cancel(connection.wake)

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_ended: object) -> None:
        self._forget()

    def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return its result; what else arrives is kept for `next_line`.

        Raises: Refused; CallCancelled; the error of a limit; NetworkError.
        """
        number = self.connection.next_number()
        self.connection.send({"id": number, "method": method, "params": params})
        while True:
            line = self._receive()
            if line.get("id") != number or "method" in line:
                self._waiting.append(line)
            elif "error" in line:
                error = line["error"]
                raise Refused(str(error.get("message") if isinstance(error, Mapping) else error))
            else:
                result = line.get("result")
                return result if isinstance(result, dict) else {}

    def next_line(self) -> Line:
        """Return the next notification or request of the server; raises as `request`."""
        return self._waiting.pop(0) if self._waiting else self._receive()

    def ask(self, confirm: Callable[[str, str], bool], call_id: str, why: str) -> bool:
        """Return what a person says. They are asked in a thread of its own, so that a stop need
        not wait for them, and may take as long as the whole call. Raises: what `confirm` raised.
        """
        question: Line = {"_answer": None}

        def run() -> None:
            try:
                question["_answer"] = bool(confirm(call_id, why))
            except BaseException as error:  # told to the thread that waits
                question["_error"] = error
            self.connection.wake(question)

        threading.Thread(target=run, name="codex-ask", daemon=True).start()
        while True:
            line = self._receive(patient=True)
            if line is question:
                if "_error" in question:
                    raise question["_error"]
                return bool(question["_answer"])
            self._waiting.append(line)

    def begin_answer(self) -> None:
        """Say that an answer has begun: from now on silence has the shorter limit."""
        self._answered = True

    def _receive(self, *, patient: bool = False) -> Line:
        limit_s = self._limits.idle_s if self._answered else self._limits.first_byte_s
        limit_s = 0.0 if patient else limit_s
        left_s = self._limits.total_s - (time.monotonic() - self._started)
        is_total = bool(self._limits.total_s) and (not limit_s or left_s < limit_s)
        wait_s = max(0.0, left_s) if is_total else (limit_s or None)
        self._check()
        line = self.connection.receive(wait_s)
        self._check()
        if line is None:
            raise self._too_late(is_total, limit_s)
        if not line:
            return self._receive(patient=patient)
        if self.watch.on_bytes is not None and "_size" in line:
            self.watch.on_bytes(line["_size"])
        return line

    def _check(self) -> None:
        if self.watch.cancel.cancelled:
            raise CallCancelled(f"the call to {self._route} was stopped")

    def _too_late(self, is_total: bool, limit_s: float) -> ProviderError:
        if is_total:
            text = f"did not finish within the total limit of {self._limits.total_s:g} s"
            return CallTimeout(f"{self._route} {text}; raise the limit", route=self._route)
        kind = CallStalled if self._answered else CallTimeout
        text = f"{self._route} said nothing for {limit_s:g} s; try again, or raise the limit"
        return kind(text, route=self._route)
