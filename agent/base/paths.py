"""Where things lie: the home folder and what is in it. Nothing here creates a file."""

from __future__ import annotations

import os
from pathlib import Path


def hermes_home() -> Path:
    """Return `$HERMES_HOME`, default `~/.hermes`, read at every call."""
    return Path(os.environ.get("HERMES_HOME") or Path.home() / ".hermes").expanduser()


def default_database() -> Path:
    """Return the path of the store that is used when none is given."""
    return hermes_home() / "state.db"


def memory_file() -> Path:
    """Return the path of the notes that the agent keeps across sessions."""
    return hermes_home() / "memory.md"


def config_file() -> Path:
    """Return the path of the settings file."""
    return hermes_home() / "config.yaml"
