from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.base.cancel import CancelToken
from agent.base.errors import ToolError
from agent.base.settings import ToolSettings
from agent.tools.files import WRITE_FILE
from agent.tools.paths import is_inside, resolve_path, shown_path
from agent.tools.protocol import ToolContext

PARTS = ["..", ".", "", "sub", "deep", "in", "out", "out.txt", "loop", "up", "new", "file", "~"]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ToolContext:
    """A working folder with links inside, outside, upwards and to themselves."""
    root = tmp_path_factory.mktemp("tree")
    folder, outside = root / "work", root / "outside"
    (folder / "sub" / "deep").mkdir(parents=True)
    outside.mkdir()
    (outside / "file").write_text("secret")
    (root / "workshop").mkdir()
    (folder / "file").write_text("ours")
    for link, target in {
        "in": "sub",
        "out": "../outside",
        "out.txt": "../outside/file",
        "loop": "loop",
        "sub/up": "../..",
    }.items():
        (folder / link).symlink_to(target)
    return ToolContext(cwd=folder, settings=ToolSettings(), cancel=CancelToken())


def _number(status: os.stat_result) -> tuple[int, int]:
    """Return how the kernel numbers a file; a number alone may be given once on each device."""
    return status.st_dev, status.st_ino


def _inside(folder: Path) -> set[tuple[int, int]]:
    """Return what really is in a folder, as the kernel numbers it."""
    below = {
        _number(Path(place, name).lstat())
        for place, folders, files in os.walk(folder)
        for name in folders + files
    }
    return below | {_number(folder.stat())}


paths = st.builds(
    lambda start, parts: start + "/".join(parts),
    st.sampled_from(["", "/", "../work/", "{cwd}/", "{cwd}/../workshop/", "{cwd}x/"]),
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=6),
).filter(str.strip)


@given(path=paths)
@example(path="in/../../outside/file")
@example(path="out/file")
@example(path="sub/up/outside")
def test_inside_is_what_the_kernel_finds_inside(context: ToolContext, path: str) -> None:
    path = path.replace("{cwd}", str(context.cwd))
    real = resolve_path(path, context)
    try:
        touched = os.stat(context.cwd / Path(path).expanduser())  # noqa: PTH116
    except OSError:
        return
    assert is_inside(real, context) == (_number(touched) in _inside(context.cwd))


@given(path=paths)
@example(path="out/new")
@example(path="new/../out/new/new")
def test_a_write_that_counts_as_inside_leaves_the_outside_alone(
    context: ToolContext, path: str
) -> None:
    path = path.replace("{cwd}", str(context.cwd))
    if not is_inside(resolve_path(path, context), context):
        return
    root = context.cwd.parent

    def outside() -> list[tuple[str, list[str], list[str]]]:
        return sorted(
            (place, sorted(folders), sorted(files))
            for place, folders, files in os.walk(root)
            if not Path(place).is_relative_to(context.cwd)
        )

    before = outside()
    try:
        WRITE_FILE.run({"path": path, "content": "x"}, context)
    except (ToolError, OSError):
        pass
    assert outside() == before
    assert (root / "outside" / "file").read_text() == "secret"


@pytest.mark.parametrize("path", ["", " ", "a\0b", "~nobody-of-that-name/x"])
def test_a_path_that_names_no_file_is_refused(context: ToolContext, path: str) -> None:
    with pytest.raises(ToolError, match="names no file"):
        resolve_path(path, context)


def test_a_path_is_shown_relative_where_it_is_inside(context: ToolContext) -> None:
    shown = [shown_path(resolve_path(path, context), context) for path in ("in/x", ".", "/etc")]
    assert shown == ["sub/x", ".", "/etc"]
