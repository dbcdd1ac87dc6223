"""Plants items in a realistic transcript: same arguments, same bytes.

The user's other requests are sentences of real ones about the transcript's files. What is planted
carries no label. A user's text is a short turn of its own or stands before a
request; a tool's text is a line somewhere in a result; an assistant's ends an answer. Nothing is
planted in the last fifth, so that no item is in the tail that a pass keeps anyway.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agent.base.messages import Message, text_of
from agent.testing.transcripts import transcript
from benchmarks.fidelity.items import Item, load_items, load_requests
from benchmarks.fidelity.values import draw, look_alike

SHARES = {
    "rule": 0.28,
    "update": 0.16,
    "lookalike": 0.08,
    "described": 0.14,
    "withdrawal": 0.10,
    "injection": 0.10,
    "pasted": 0.08,
    "talk": 0.06,
}
"""How the items of a session are divided among the kinds."""

COUNTS = {100: 14, 500: 40, 2000: 96}
"""Items in a session, by its messages; other lengths get one item for each ten messages."""

PLANTED_SHARE = 0.8
ALONE_SHARE = 0.5
"""Part of the user's texts that are turns of their own; the others stand before a request."""

_PATH = re.compile(r"src/\w+/\w+\.py")
_ALWAYS_ALONE = frozenset({"pasted", "talk"})
_ANSWERS = {
    "en": ("All right.", "Got it.", "Okay, thanks.", "Sure."),
    "de": ("In Ordnung.", "Alles klar.", "Gut, danke."),
    "fr": ("D'accord.", "Bien reçu.", "Entendu."),
    "es": ("De acuerdo.", "Entendido.", "Vale."),
    "zh": ("好的。", "明白了。", "收到。"),
    "ja": ("承知しました。", "わかりました。", "了解です。"),
}


@dataclass(frozen=True)
class Planted:
    """An item as it was said in one session; `places` are indexes of the messages that hold it."""

    item: Item
    texts: tuple[str, ...]
    places: tuple[int, ...]
    expected: tuple[str, ...]
    stale: tuple[str, ...]
    forbidden: tuple[str, ...]


@dataclass(frozen=True)
class Session:
    """A valid transcript without a system message, and what is planted in it."""

    messages: list[Message]
    planted: tuple[Planted, ...]


@dataclass
class _Edits:
    """What goes where in a base transcript, by index of its messages."""

    alone: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    before: dict[int, list[str]] = field(default_factory=dict)
    after: dict[int, list[str]] = field(default_factory=dict)
    inside: dict[int, list[tuple[float, str]]] = field(default_factory=dict)


def plant(part: str, *, seed: int, messages: int, count: int = 0) -> Session:
    """Return a session of exactly `messages` messages with `count` items of a part, 0 for the
    usual number.

    Raises: ValueError when the transcript is too short for them.
    """
    rng = random.Random(f"{seed}/{messages}")  # nosec B311: repeatable test data
    chosen = choose(load_items(part), rng, count or COUNTS.get(messages, messages // 10))
    alone = [[_is_alone(item, where, rng) for where, _text in item.turns] for item in chosen]
    rest = messages - 2 * sum(map(sum, alone))
    if rest < messages // 4:
        raise ValueError(f"{messages} messages are too few for {len(chosen)} items")
    base = _with_requests(transcript(seed, messages=rest), load_requests(part), rng)
    taken = "\n".join(text_of(message.get("content")) for message in base)
    edits = _Edits()
    said: list[tuple[Item, Mapping[str, str]]] = []
    for item, own_turns in zip(chosen, alone, strict=True):
        values = _draw_values(item, rng, taken)
        taken += "\n" + "\n".join(values.values())
        said.append((item, values))
        for (where, text), turn, own in zip(
            item.turns, _pick_turns(base, len(item.turns), rng), own_turns, strict=True
        ):
            _place(edits, base, (where, fill(text, values)), turn, (item.language, own), rng)
    made = _apply(base, edits, rng)
    return Session(made, tuple(_planted(item, values, made) for item, values in said))


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return `text` with its `{name}` replaced by the values; other braces stay."""
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), text)


def choose(items: Sequence[Item], rng: random.Random, count: int) -> list[Item]:
    """Return `count` items, each kind by its share, no two of one topic, in random order."""
    chosen: list[Item] = []
    topics: set[str] = set()
    for kind, share in SHARES.items():
        wanted = max(1, round(share * count))
        deck = [item for item in items if item.kind == kind]
        rng.shuffle(deck)
        for item in deck:
            if wanted and item.topic not in topics:
                chosen.append(item)
                topics.add(item.topic)
                wanted -= 1
    rng.shuffle(chosen)
    return chosen


def _with_requests(
    base: Sequence[Message], requests: Sequence[str], rng: random.Random
) -> list[Message]:
    """Return the transcript with a real request for each made of random words."""
    made = []
    for message in base:
        path = _PATH.search(text_of(message.get("content"))) if message["role"] == "user" else None
        if path is not None:
            message = {**message, "content": fill(rng.choice(requests), {"path": path[0]})}
        made.append(message)
    return made


def _is_alone(item: Item, where: str, rng: random.Random) -> bool:
    return where == "user" and (item.kind in _ALWAYS_ALONE or rng.random() < ALONE_SHARE)


def _draw_values(item: Item, rng: random.Random, taken: str) -> dict[str, str]:
    """Return a value for each name; none but small numbers occurs in the session already."""
    values: dict[str, str] = {}
    for name, kind in item.values.items():
        while True:
            value = draw(rng, kind, item.language)
            if item.kind == "lookalike" and values:
                value = look_alike(rng, next(iter(values.values())))
            fresh = value not in values.values()
            if fresh and (kind in {"int", "hour"} or value not in taken):
                break
        values[name] = value
    return values


# -- where ----------------------------------------------------------------------------------------
def _starts(base: Sequence[Message]) -> list[int]:
    """Return the indexes of the requests before which, or in which, something may be planted.

    The answer to each comes early enough, too.
    """
    last = int(len(base) * PLANTED_SHARE)
    final = max((index for index in range(last) if _is_answer(base[index])), default=0)
    return [
        index
        for index, message in enumerate(base)
        if message["role"] == "user" and index + 12 <= last and index < final
    ]


def _pick_turns(base: Sequence[Message], count: int, rng: random.Random) -> list[int]:
    """Return the indexes of `count` different requests, in order."""
    starts = _starts(base)
    if len(starts) < count:
        raise ValueError(f"{len(base)} messages hold {len(starts)} requests; {count} are needed")
    return sorted(rng.sample(starts, count))


def _place(
    edits: _Edits,
    base: Sequence[Message],
    said: tuple[str, str],
    turn: int,
    manner: tuple[str, bool],
    rng: random.Random,
) -> None:
    (where, text), (language, alone) = said, manner
    if where == "user" and alone:
        edits.alone.setdefault(turn, []).append((text, rng.choice(_ANSWERS[language])))
    elif where == "user":
        edits.before.setdefault(turn, []).append(text)
    elif where == "assistant":
        answers = (i for i in range(turn, len(base)) if _is_answer(base[i]))
        edits.after.setdefault(next(answers), []).append(text)
    else:
        edits.inside.setdefault(_result(base, where, turn), []).append((rng.random(), text))


def _is_answer(message: Message) -> bool:
    return message["role"] == "assistant" and not message.get("tool_calls")


def _result(base: Sequence[Message], tool: str, turn: int) -> int:
    """Return the index of a readable result of the tool, the nearest after the turn's begin."""
    last = int(len(base) * PLANTED_SHARE)
    found = [index for index, name in _results(base) if name == tool and index < last]
    anything = [index for index, _name in _results(base) if index < last]
    candidates = found or anything
    if not candidates:
        raise ValueError(f"{len(base)} messages hold no tool result to plant in")
    return min(candidates, key=lambda index: (index < turn, abs(index - turn)))


def _results(base: Sequence[Message]) -> Iterator[tuple[int, str]]:
    """Yield index and tool of each result that is text."""
    names: dict[str, str] = {}
    for index, message in enumerate(base):
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
        if message["role"] == "tool" and "\n" in message["content"]:
            yield index, names[message["tool_call_id"]]


def _apply(base: Sequence[Message], edits: _Edits, rng: random.Random) -> list[Message]:
    made: list[Message] = []
    for index, message in enumerate(base):
        for text, answer in edits.alone.get(index, ()):
            made.append({"role": "user", "content": text})
            made.append({"role": "assistant", "content": answer})
        content = message.get("content")
        if index in edits.before:
            content = "\n\n".join([*edits.before[index], text_of(content)])
        if index in edits.after:
            content = " ".join([text_of(content), *edits.after[index]])
        if index in edits.inside:
            lines = text_of(content).split("\n")
            for share, text in edits.inside[index]:
                lines.insert(int(share * (len(lines) + 1)), text)
            content = "\n".join(lines)
        made.append({**message, "content": content})
    return made


def _planted(item: Item, values: Mapping[str, str], made: Sequence[Message]) -> Planted:
    texts = tuple(fill(text, values) for _where, text in item.turns)
    return Planted(
        item,
        texts,
        tuple(_index_of(text, made) for text in texts),
        tuple(fill(text, values) for text in item.expected),
        tuple(fill(text, values) for text in item.stale),
        tuple(fill(text, values) for text in item.forbidden),
    )


def _index_of(text: str, made: Sequence[Message]) -> int:
    return next(
        index for index, message in enumerate(made) if text in text_of(message.get("content"))
    )
