from __future__ import annotations

from pathlib import Path

import pytest

from agent.tools.order import Touch, must_wait
from agent.tools.protocol import Access, Tool


def _touch(text: str) -> Touch:
    """Return what `access:path` touches; the tool is named after the access."""
    access, _, path = text.partition(":")
    tool = Tool(
        name=access,
        description="",
        parameters={},
        access=Access(access),
        run=lambda _arguments, _context: "",
        describe=lambda _arguments: "",
    )
    return Touch(tool, [Path(path)] if path else [])


@pytest.mark.parametrize(
    ("earlier", "later", "waits"),
    [
        ("read:/a", "read:/a", False),
        ("read:/a", "execute", False),
        ("execute", "execute", False),
        ("write:/a", "write:/a", True),
        ("write:/a", "read:/a", True),
        ("read:/a", "write:/a", True),
        ("write:/a", "write:/b", False),
        ("write:/a/b", "read:/a", True),
        ("read:/a", "write:/a/b", True),
        ("write:/ab", "read:/a", False),
        ("write:/a", "execute", True),
        ("execute", "write:/a", True),
        ("write", "write", False),
        ("own", "own", True),
        ("own", "write:/a", False),
        ("execute", "own", False),
    ],
)
def test_a_call_waits_for_an_earlier_one_that_it_could_disturb(
    earlier: str, later: str, waits: bool
) -> None:
    assert must_wait(_touch(later), _touch(earlier)) is waits
