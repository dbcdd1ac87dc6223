"""From options to an open store and an agent; every command that needs one comes through here."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agent.base.errors import ProviderError, UsageError
from agent.base.record import dataclass
from agent.base.settings import Settings
from agent.providers.catalog import list_models
from agent.settings import load_settings, needs_model_name
from agent.tui.chat import Screen
from hermes_state import SessionDB
from run_agent import AIAgent

_MOST_NAMES = 20


def open_store(settings: Settings) -> SessionDB:
    """Open the store that the settings name, made at first use."""
    return SessionDB(url=settings.database.url or None)


def import_extra(module: str, extra: str) -> Any:
    """Return a module that needs an extra. Raises: UsageError with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "agent":
            raise
        raise UsageError(
            f"{error.name!r} is not installed; run: pip install 'hermes-continuum[{extra}]'"
        ) from None


@contextmanager
def opened_store() -> Iterator[SessionDB]:
    """Open the store of the settings in force for the length of a `with` block."""
    store = open_store(load_settings())
    try:
        yield store
    finally:
        store.close()


@contextmanager
def opened_agent(settings: Settings, session: str) -> Iterator[AIAgent]:
    """Open an agent on a stored session (id, beginning of one, or title) for the length of a
    `with` block."""
    store = open_store(settings)
    try:
        record = store.find_session(session)
        agent = AIAgent(settings=settings, session_db=store, session_id=record.id, platform="cli")
        try:
            yield agent
        finally:
            agent.close()
    finally:
        store.close()


def require_model(settings: Settings) -> None:
    """Return when a model is named or the embedded one answers.

    Raises: UsageError that lists the endpoint's models and the command that sets one.
    """
    if not needs_model_name(settings):
        return
    try:
        names = list_models(settings.model)
    except ProviderError as error:
        raise UsageError(
            f"no model is set, and the endpoint cannot be asked for its models ({error}); "
            "run: hermes config set model.name NAME"
        ) from None
    if not names:
        raise UsageError(
            f"no model is set and {settings.model.base_url} lists none; "
            "run: hermes config set model.name NAME"
        )
    listed = ", ".join(names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    raise UsageError(
        f"no model is set; {settings.model.base_url} has {listed}{more}; "
        f"run: hermes config set model.name {names[0]}"
    )


@dataclass(frozen=True)
class AgentChoice:
    """Makes the agents of one command: same settings, same store, another session each time."""

    settings: Settings
    store: SessionDB
    tools: bool = True

    def __call__(self, session_id: str | None, screen: Screen) -> AIAgent:
        """Return an agent on a stored session, or on a new one for None."""
        return AIAgent(
            settings=self.settings,
            session_db=self.store,
            session_id=session_id,
            builtin_tools=self.tools,
            on_event=screen.event,
            confirm=screen.confirm,
            platform="cli",
        )
