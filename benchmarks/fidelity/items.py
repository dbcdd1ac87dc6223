"""The phrasings that sessions are made of, read from `sessions/`.

The files of part `tune` may be read by whoever writes the extractor, those of `test` may not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

PARTS = ("tune", "test")
KINDS = (
    "rule",
    "update",
    "lookalike",
    "described",
    "withdrawal",
    "injection",
    "pasted",
    "talk",
)
LANGUAGES = ("en", "de", "fr", "es", "zh", "ja")
_FOLDER = Path(__file__).parent / "sessions"


@dataclass(frozen=True)
class Item:
    """One thing that is said once or twice in a session, and what must become of it.

    `turns` are (where, text), oldest first; where is `user`, `assistant` or the tool in whose
    result the text stands. Texts may hold `{name}` for a value drawn for each session, of the type
    `values[name]`. `expected` must be found later, `stale` must not stand in the notes without it,
    `forbidden` must never become a standing instruction. A number counts as found only within
    sight of one of the words `near`. `subject` is how a model asks the archive for it. Items of one
    `topic` speak of the same thing and never meet in a session.
    """

    id: str
    part: str
    kind: str
    language: str
    topic: str
    subject: str
    turns: tuple[tuple[str, str], ...]
    values: Mapping[str, str]
    expected: tuple[str, ...]
    stale: tuple[str, ...]
    forbidden: tuple[str, ...]
    near: tuple[str, ...]


def load_items(part: str) -> list[Item]:
    """Return the items of `tune` or `test`, in the file's order."""
    lines = (_FOLDER / f"{part}.jsonl").read_bytes().splitlines()
    return [_item(orjson.loads(line)) for line in lines]


def load_requests(part: str) -> list[str]:
    """Return plain requests of `tune` or `test`, each with `{path}` where a file is named."""
    return (_FOLDER / f"requests-{part}.txt").read_text("utf-8").splitlines()


def _item(raw: dict[str, object]) -> Item:
    fields: dict[str, object] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()
    }
    turns = raw["turns"]
    assert isinstance(turns, list)
    fields["turns"] = tuple((turn["from"], turn["text"]) for turn in turns)
    return Item(**fields)  # type: ignore[arg-type]  # the test of the files checks every field
