"""Markdown of an answer while it still arrives: finished blocks are rendered, the rest stays plain.

A block ends at a blank line outside a code fence, so what is rendered never changes afterwards.
"""

from __future__ import annotations

import io
import re
from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class LeftHeading(Heading):
    """A heading at the left edge, as everything else in a conversation."""

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class AnswerMarkdown(Markdown):
    """Markdown as answers show it."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": LeftHeading,
    }


class BlockSplitter:
    """Collects pieces of text and gives out whole Markdown blocks.

    Concurrency: one thread.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._rest = ""
        self._fence = ""

    @property
    def pending(self) -> str:
        """The text of the block that has not ended."""
        return "\n".join([*self._lines, self._rest])

    def feed(self, text: str) -> list[str]:
        """Take the next piece and return the blocks it ended, in order."""
        blocks = []
        *complete, self._rest = (self._rest + text).split("\n")
        for line in complete:
            block = self._take(line)
            if block:
                blocks.append(block)
        return blocks

    def finish(self) -> str:
        """Return what is left as the last block and start afresh; empty when nothing is left."""
        block = self.pending.strip("\n")
        self._lines, self._rest, self._fence = [], "", ""
        return block

    def _take(self, line: str) -> str:
        found = _FENCE.match(line)
        if found and not self._fence:
            self._fence = found.group(1)
        elif found and line.strip().startswith(self._fence) and not line.strip(" `~"):
            self._fence = ""
        elif not line.strip() and not self._fence:
            block = "\n".join(self._lines)
            self._lines = []
            return block
        self._lines.append(line)
        return ""


def render_block(block: str, width: int, *, color: bool) -> str:
    """Return a Markdown block as terminal text, lines of at most `width` cells."""
    console = Console(
        file=io.StringIO(),
        width=max(width, 8),
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
    )
    with console.capture() as capture:
        console.print(AnswerMarkdown(block, hyperlinks=False, code_theme="ansi_dark"))
    lines = [line.rstrip() for line in capture.get().split("\n")]
    return "\n".join(lines).strip("\n")
