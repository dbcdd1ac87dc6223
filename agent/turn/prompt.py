"""The system prompt of a session: built once at its first turn and kept with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent.base.paths import memory_file
from agent.base.record import dataclass
from agent.turn.options import AgentOptions

CONTEXT_FILES = ("AGENTS.md", "HERMES.md")
IDENTITY = "You are a helpful assistant. Answer in the user's language, briefly and truthfully."
WITH_TOOLS = """\
You have tools; use them to look before you claim and to act when asked. Earlier parts of a long \
conversation may be shown as a summary or an excerpt: every message is kept, and `recall` reads \
any of them word for word. Say plainly what you did and what you could not do."""
_SMALLEST_FILE_CHARS = 1_000


@dataclass(frozen=True)
class PromptParts:
    """What a prompt is built from. `memory` is the text of the notes file, empty for none."""

    cwd: Path
    tools_offered: bool
    files: Sequence[tuple[str, str]] = ()
    memory: str = ""


def read_context_files(cwd: Path) -> list[tuple[str, str]]:
    """Return (name, text) of the readable context files in the working folder."""
    found = []
    for name in CONTEXT_FILES:
        text = read_notes(cwd / name)
        if text:
            found.append((name, text))
    return found


def read_notes(path: Path) -> str:
    """Return a text file's content, or an empty string when there is none that can be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def fresh_prompt(
    options: AgentOptions, cwd: Path, *, tools_offered: bool, window_tokens: int
) -> str:
    """Return the prompt of a session that begins now, from the files as they are."""
    parts = PromptParts(
        cwd=cwd,
        tools_offered=tools_offered,
        files=() if options.skip_context_files else read_context_files(cwd),
        memory="" if options.skip_memory else read_notes(memory_file()),
    )
    return build_prompt(parts, window_tokens=window_tokens)


def build_prompt(parts: PromptParts, *, window_tokens: int) -> str:
    """Return the system prompt; each file gets at most a tenth of the window."""
    limit = max(_SMALLEST_FILE_CHARS, window_tokens * 4 // 10)
    sections = [IDENTITY]
    if parts.tools_offered:
        sections += [WITH_TOOLS, f"Working folder: {parts.cwd}"]
    for name, text in [*parts.files, *([("memory.md", parts.memory)] if parts.memory else [])]:
        sections.append(f'<file name="{name}">\n{_bounded(text, limit, name)}\n</file>')
    return "\n\n".join(sections)


def _bounded(text: str, limit: int, name: str) -> str:
    if len(text) <= limit:
        return text
    return (
        f"{text[:limit]}\n[{len(text) - limit} of {len(text)} characters of {name} left out here]"
    )
