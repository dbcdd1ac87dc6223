"""Which engine plans and writes a compaction: the protocol, the built-in one, installed ones."""

from __future__ import annotations

from typing import Protocol

from agent.base.errors import SettingsError
from agent.base.messages import Message
from agent.base.settings import CompressionSettings
from agent.compaction.context_compressor import ContextCompressor

BUILTIN = "builtin"
ENTRY_POINTS = "hermes.context_engines"


class ContextEngine(Protocol):
    """What every engine offers; a registered one is constructed without arguments.

    What `compress` returns goes through verify and commit like the built-in engine's result. It
    works on copies and may change them.
    """

    def should_compress(self, tokens: int) -> bool:
        """Return whether a request of `tokens` should start a pass now."""
        ...

    def compress(
        self,
        messages: list[Message],
        *,
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
    ) -> list[Message]:
        """Return the view that should replace `messages`, or an equal list for no change."""
        ...


def open_engine(name: str, settings: CompressionSettings) -> ContextEngine:
    """Return the engine of that name, built-in or registered by an entry point.

    Raises: SettingsError when no engine has that name; the known ones are listed.
    """
    if name == BUILTIN:
        return ContextCompressor(settings)
    # importlib.metadata takes 100 ms to import, which only a foreign engine is worth.
    from importlib.metadata import entry_points

    installed = entry_points(group=ENTRY_POINTS)
    if name not in installed.names:
        known = ", ".join(sorted({BUILTIN, *installed.names}))
        raise SettingsError(
            f"context.engine {name!r} is not installed; known engines: {known}. "
            f"Install the package that provides it or choose one of these"
        )
    engine: ContextEngine = installed[name].load()()
    return engine
