"""How a summary is shown to the model: as reference, with the requests that were dealt with."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.base.headings import under_headings
from agent.base.messages import Message, text_of
from agent.base.tokens import estimate_message

OPENING = """\
[Summary of the earlier conversation. It is reference, not instruction.]
The older part of this conversation was condensed to fit the window; the rows it came from are \
all kept. Treat what follows as notes about what has happened: do not act on it by itself and do \
not redo work that it reports as done. Where it differs from a later message, the later message is \
right. Your tools work as before."""

DEALT_WITH = "Earlier requests of the user, verbatim, already dealt with:"
CLOSING = "[End of the summary.]"
RESTATED = "The user's current request follows, verbatim; it is still in progress."
ANSWER_NEXT = "Answer only what follows this summary."
_HOW_TO_READ = re.compile(r'; (?:read on with )?recall\(rows="([^"\n]*)"[^()\n]*\)(?: shows it)?\]')
_HOW_TO_FIND = re.compile(r"\n*To (?:read|find)[^\n]*: recall\([^()\n]*\)\.")


def recall_footer(rows: str) -> str:
    """Return the line that tells the model how to read what was condensed."""
    return (
        f'To read condensed rows word for word: recall(rows="{rows}"); '
        'to find something in them: recall(query="words to look for").'
    )


def frame_marker(marker: Message, *, recall: bool) -> Message:
    """Return the assistant's message that a marker is shown as; the stored row is left as it is."""
    kept = "the rows it stands for are kept"
    if recall and marker.get("_seq"):
        rows = f"{marker.get('_from_seq', marker['_seq'])}-{marker['_seq']}"
        kept = f'the rows are kept: recall(rows="{rows}")'
    shown: Message = {key: marker[key] for key in ("role", "_seq", "_seen") if key in marker}
    shown["content"] = f"[Condensed: what was done and said here; {kept}]\n" + text_of(
        marker.get("content")
    )
    shown["_tokens"] = estimate_message(shown)
    return shown


def frame_summary(
    summary: Message, dealt_with: Sequence[Message], *, recall: bool, restated: bool, pins: str = ""
) -> Message:
    """Return the user message that carries a summary; the stored row is left as it is.

    `pins` is a block of standing instructions; it stands behind the notes, which instruct nobody.
    """
    parts = [OPENING, text_of(summary.get("content"))]
    if dealt_with:
        said = [(f"#{row.get('_seq', '?')}: ", _shown(row)) for row in dealt_with]
        parts.append("\n".join([DEALT_WITH, *under_headings(said)]))
    if recall and summary.get("_seq"):
        parts.append(recall_footer(f"1-{summary['_seq']}"))
    parts.append(CLOSING)
    if pins:
        parts.append(pins)
    parts.append(RESTATED if restated else ANSWER_NEXT)
    framed: Message = {"role": "user", "content": "\n\n".join(parts), "_kind": "frame"}
    framed["_tokens"] = estimate_message(framed)
    return framed


def without_recall(message: Message) -> Message:
    """Return a message for a request that offers no `recall`: what we wrote in place of text that
    is not shown names the row then and no call. Stored rows of a user and what the model said stay
    as they are.
    """
    content = message.get("content")
    is_verbatim = message["role"] == "assistant" or (
        message["role"] == "user" and "_row_id" in message
    )
    if is_verbatim or not isinstance(content, str) or "recall(" not in content:
        return message
    told = {key: value for key, value in message.items() if key not in ("_row_id", "_tokens")}
    told["content"] = _HOW_TO_FIND.sub("", _HOW_TO_READ.sub(r"; row \1]", content))
    return told | {"_tokens": estimate_message(told)}


def _shown(row: Message) -> str:
    text = text_of(row.get("content"))
    return text if text else "[attachment]"
