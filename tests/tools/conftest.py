"""A context of its own for each test: an empty working folder, everything allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.base.cancel import CancelToken
from agent.base.settings import ToolSettings
from agent.tools.protocol import ToolContext


@pytest.fixture
def context(tmp_path: Path) -> ToolContext:
    folder = tmp_path / "work"
    folder.mkdir()
    return ToolContext(cwd=folder, settings=ToolSettings(approval="off"), cancel=CancelToken())
