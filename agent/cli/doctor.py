"""`hermes doctor`: is everything there that a conversation needs, and is the store sound?"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator
from typing import Annotated

import typer

from agent.base.errors import HermesError, ProviderError, SettingsError, StoreError
from agent.base.paths import config_file
from agent.base.record import dataclass
from agent.base.settings import Settings
from agent.cli.opening import open_store, require_model
from agent.cli.options import JsonFlag, command_app
from agent.cli.output import print_json, print_lines
from agent.providers.catalog import list_models, open_route
from agent.providers.local import LocalModel, require_embedded
from agent.sessions.records import PassStatus
from agent.settings import load_settings
from agent.telemetry import availability
from agent.tui import figures
from agent.tui.render import Line
from hermes_state import SessionDB

app = command_app()

EXTRAS = {"local": "xllamacpp"}
"""Optional parts and the module that each brings."""

_ALL_SESSIONS = 1_000_000_000


@dataclass(frozen=True)
class Check:
    """One thing looked at; `exit_code` is 0 when it is as it should be."""

    name: str
    text: str
    exit_code: int = 0


@app.command(epilog="Example: hermes doctor --repair")
def doctor(
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Complete the search index and close compactions that died."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check settings, store, model, extras and telemetry; the exit code tells what is wrong."""
    checks = list(run_checks(repair=repair))
    code = max((check.exit_code for check in checks), default=0)
    if as_json:
        print_json({"ok": code == 0, "checks": [dataclasses.asdict(check) for check in checks]})
    else:
        rows = [("FAIL" if check.exit_code else "ok  ", check.name, check.text) for check in checks]
        print_lines([Line(text) for text in figures.table(("", "check", "result"), rows)])
    raise typer.Exit(code)


def run_checks(*, repair: bool) -> Iterator[Check]:
    """Look at everything, in the order in which a conversation needs it."""
    try:
        settings = load_settings()
    except SettingsError as error:
        yield Check("settings", str(error), error.exit_code)
        settings = Settings()
    else:
        found = config_file().is_file()
        yield Check("settings", f"{config_file()}{'' if found else ' is not there: defaults'}")
    yield from check_store(settings, repair=repair)
    yield from check_model(settings)
    for extra, module in EXTRAS.items():
        there = importlib.util.find_spec(module) is not None
        yield Check(f"extra {extra}", "installed" if there else "not installed")
    for line in availability():
        yield Check("telemetry", line)


def check_store(settings: Settings, *, repair: bool) -> Iterator[Check]:
    """Look at every law that can be seen on disk."""
    try:
        store = open_store(settings)
    except HermesError as error:
        yield Check("store", str(error), error.exit_code)
        return
    try:
        if repair:
            yield Check("repair", repair_store(store))
        report = store.check()
        for problem in report.problems:
            yield Check("store", problem, StoreError.exit_code)
        if not report.problems:
            figure = ", ".join(
                figures.counted(number, noun)
                for number, noun in (
                    (report.conversations, "conversation"),
                    (report.rows, "row"),
                    (report.passes, "compaction"),
                )
            )
            yield Check("store", f"{store.path}: sound, {figure}")
    except StoreError as error:
        yield Check("store", str(error), error.exit_code)
    finally:
        store.close()


def repair_store(store: SessionDB) -> str:
    """Complete the search index and close attempts whose process is gone; return what was done."""
    indexed = store.index_pending()
    closed = 0
    for session in store.sessions(limit=_ALL_SESSIONS):
        if any(record.status is PassStatus.PLANNED for record in store.passes(session.id)):
            lease = store.acquire_lease(session.id)
            if lease is not None:
                store.release_lease(lease)
                closed += 1
    closed_text = figures.counted(closed, "dead compaction")
    return f"{figures.counted(indexed, 'row')} indexed, {closed_text} closed"


def check_model(settings: Settings) -> Iterator[Check]:
    """Look whether the model can be reached, and at its window."""
    try:
        require_model(settings)
        provider = open_route(settings.model, settings.local)
        try:
            yield check_route(settings, embedded=isinstance(provider, LocalModel))
            yield Check("window", f"{figures.count(provider.window_tokens)} tokens")
        finally:
            provider.close()
    except HermesError as error:
        yield Check("model", str(error), error.exit_code)


def check_route(settings: Settings, *, embedded: bool) -> Check:
    """Return whether the embedded model is there, or the endpoint answers and has the model."""
    if embedded:
        return Check("model", f"embedded: {require_embedded(settings.local).name}")
    names = list_models(settings.model)
    where = f"{settings.model.name} at {settings.model.base_url}"
    if names and settings.model.name not in names:
        return Check(
            "model",
            f"{where}: the endpoint answers but lists {', '.join(names[:20])}",
            ProviderError.exit_code,
        )
    return Check("model", f"{where}: reachable")
