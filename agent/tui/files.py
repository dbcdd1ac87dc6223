"""Conversations in files of our own: writing one, taking one in, and the lines that tell of it."""

from __future__ import annotations

import os
from pathlib import Path

from agent.base.errors import UsageError
from agent.sessions.protocol import SessionStore
from agent.sessions.records import Imported
from agent.tui import figures
from agent.tui.render import Line


def export_file(store: SessionStore, session_id: str, path: Path) -> Line:
    """Write a conversation to a new file that only its owner may read, and tell of it.

    Raises: UsageError: the file exists or cannot be written; then nothing of it is left behind.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError(f"{str(path)!r} exists already; name another file") from None
    except OSError as error:
        raise _cannot("write", path, error) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            store.export_session(session_id, file)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise _cannot("write", path, error) from None
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    size = figures.size(path.stat().st_size)
    return Line(f"wrote {session_id} to {str(path)!r}, {size}; hermes sessions import reads it")


def import_file(store: SessionStore, path: Path, title: str | None) -> Imported:
    """Take a file in. Raises: UsageError: it cannot be read, or nothing of it can be taken."""
    try:
        with path.open("rb") as file:
            return store.import_session(file, title=title)
    except OSError as error:
        raise _cannot("read", path, error) from None
    except UsageError as error:
        raise UsageError(f"cannot import {str(path)!r}: {error}") from None


def _cannot(what: str, path: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot {what} {str(path)!r}: {error.strerror or error}; choose another")


def imported_line(imported: Imported) -> Line:
    """Return what was taken in."""
    session = imported.session
    title = f" {figures.one_line(session.title)!r}" if session.title else ""
    return Line(
        f"imported as {session.id}{title}: {figures.counted(session.message_count, 'message')}, "
        f"{session.pass_count} compacted"
    )


def import_fault(imported: Imported, path: Path) -> str:
    """Return where a file broke, "" for one that was taken in whole."""
    if imported.broken_line is None:
        return ""
    return (
        f"{str(path)!r} breaks at line {imported.broken_line}: {imported.broken_why}; "
        f"{imported.rows} of {imported.rows_announced} rows were imported"
    )
