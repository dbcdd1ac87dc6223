"""What a pass must not lose: looked for in its candidate; what is missing is put back verbatim.

Pure. Anchors stand at the end of the pass's row, within `Budget.anchor_tokens` and what the summary
left unused; they never make a candidate grow. They are made anew by each pass from the stored
extracts, so nothing has to be carried from summary to summary.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from agent.base.messages import Message, text_of
from agent.base.record import dataclass
from agent.base.tokens import estimate_message, estimate_text
from agent.compaction.anchors import (
    FACTS,
    HEADING,
    Anchor,
    anchor_tokens,
    render_anchors,
    tell,
)
from agent.compaction.attempt import Changes
from agent.compaction.budget import Budget, row_tokens, shown_tokens, total_tokens
from agent.compaction.cite import cite_sections
from agent.compaction.material import Material
from agent.compaction.openwork import UNFINISHED, open_extracts
from agent.compaction.pins import choose_pins
from agent.compaction.values import nearest_later, replaced_values
from agent.compaction.verify import resulting_rows
from agent.sessions.records import PassKind, StoredExtract

NAMED_IN_RECEIPT = 60
_GAIN_SHARE = 0.5
"""Anchors may take at most this part of what the pass gains."""
_WORTH = {
    ("instruction", "user"): 9.0,
    ("withdrawal", "user"): 7.0,
    ("task", "assistant"): 8.0,
    ("decision", "user"): 7.0,
    (UNFINISHED, "assistant"): 5.5,
    (UNFINISHED, "tool"): 5.5,
    ("value", "user"): 6.0,
    ("identifier", "user"): 5.0,
    ("decision", "assistant"): 5.0,
    ("value", "assistant"): 4.0,
    ("identifier", "assistant"): 4.0,
    ("identifier", "tool"): 3.0,
    ("promise", "assistant"): 3.0,
    ("question", "assistant"): 2.0,
}
"""How much each kind is worth by who said it; what is not named here is never restored."""
_STALE_WORTH = 8.0
"""Added to a value whose forerunner, replaced for sure or perhaps, is in view without it."""
WAS_MAX_CHARS = 20
"""A longer value that was replaced is told only where it is in view."""
_LEAST_TOKENS = 8
_TOKEN = re.compile(r"[^\s\"'`<>()\[\]{},;，。、；：「」“”„«»]+")
"""Words and numbers, looked up in a set; what else a value can be is searched for."""


@dataclass(frozen=True)
class Conserved:
    """The changes with anchors and citations in their new row, and what the receipt says of it."""

    changes: Changes
    receipt: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Missing:
    """An extract to restore; `brief` is how it reads when not everything fits."""

    anchor: Anchor
    brief: Anchor
    extract: StoredExtract
    score: float


def conserve(
    inputs: Sequence[Message], changes: Changes, material: Material, budget: Budget
) -> Conserved:
    """Return the changes with what would be lost restored within the budget."""
    if not material.extracts:
        return Conserved(changes)
    extracts = open_extracts(inputs, material.extracts)
    material = dataclasses.replace(material, extracts=extracts)
    pinned = choose_pins(material.pins, budget.pin_tokens)[0]
    content = text_of(changes.new_row["content"]) if changes.new_row else ""
    text = "\n".join([content, *(f"{pin.text}\n{pin.doubt}" for pin in pinned)])
    sight = _Sight(material, _kept_row_ids(inputs, changes), text)
    restored, sections = list[_Missing](), list[dict[str, Any]]()
    if changes.new_row is not None:
        room = _room(inputs, changes, budget)
        if changes.kind is PassKind.SUMMARY:
            covered = [inputs[ref].get("_seq", 0) for ref in changes.covered]
            cited, sections = cite_sections(content, covered, material.extracts)
            cost = estimate_text(cited) - estimate_text(content)
            if cost <= room:
                content, room = cited, room - cost
        missing = _missing(material, sight)
        restored, block = _choose(missing, room)
        left_out = {each.extract.value for each in missing} - {m.extract.value for m in restored}
        if any(each.extract.value in left_out and each.extract.role == "user" for each in missing):
            brief = [dataclasses.replace(each, anchor=each.brief) for each in missing]
            restored, block = _choose(brief, room)
        content = f"{content}\n\n{block}" if block else content
        row = {**changes.new_row, "content": content}
        row["_tokens"] = estimate_message(row)
        changes = dataclasses.replace(changes, new_row=row)
    source = {inputs[ref].get("_row_id") for ref in changes.covered}
    source |= {inputs[mask.ref].get("_row_id") for mask in changes.masked}
    receipt = _receipt(material, source, sight, restored)
    return Conserved(changes, {**receipt, "sections": sections} if sections else receipt)


def _kept_row_ids(inputs: Sequence[Message], changes: Changes) -> frozenset[int]:
    """Return the ids of the rows that stay in view as they were accepted."""
    masked = {mask.ref for mask in changes.masked}
    return frozenset(
        inputs[ref]["_row_id"]
        for ref in changes.kept
        if ref not in masked and "_row_id" in inputs[ref] and "_stub" not in inputs[ref]
    )


def _room(inputs: Sequence[Message], changes: Changes, budget: Budget) -> int:
    """Return how many tokens may be added to the new row.

    No more than half of the gain beside what the anchors of earlier passes took, none past the
    target but for the anchors' own budget, nor so many that a request which got under the trigger
    or fits would not any more.
    """
    rows = resulting_rows(inputs, changes)
    unused = budget.summary_tokens - row_tokens(changes.new_row or {})
    gain = total_tokens(inputs) - total_tokens(rows)
    before = sum(anchor_tokens(inputs[ref]) for ref in changes.covered)
    lasting = min(before, gain)
    after = shown_tokens(rows, budget)
    to_target = max(budget.anchor_tokens, budget.target_tokens - after)
    room = min(budget.anchor_tokens + max(0, unused), to_target)
    room = min(room, lasting + int((gain - lasting) * _GAIN_SHARE))
    after += budget.overhead_tokens
    for limit in (budget.trigger_tokens, budget.usable_tokens):
        if after < limit:
            return min(room, limit - after - 1)
    return min(room, budget.anchor_tokens)


class _Sight:
    """What can be seen in the view as it would be."""

    def __init__(self, material: Material, kept: Collection[int], text: str) -> None:
        self._text = text
        self._said = {each.value for each in material.extracts if each.row_id in kept}
        tokens = _TOKEN.findall(text)
        self._tokens = {*tokens, *(token.rstrip(".:!?") for token in tokens)}

    def shows(self, extract: StoredExtract) -> bool:
        """Return whether the extract's words stand in a row, in the new one or in a pin."""
        value = extract.value
        if value in self._said or value in self._tokens:
            return True
        return not _TOKEN.fullmatch(value) and stands_in(value, self._text)


def stands_in(value: str, text: str) -> bool:
    """Return whether a value stands in a text and is not a part of a longer word there."""
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        before, after = text[start - 1 : start], text[end : end + 1]
        if not (before.isalnum() and value[0].isalnum() and before.isascii()) and not (
            after.isalnum() and value[-1].isalnum() and after.isascii()
        ):
            return True
        start = text.find(value, start + 1)
    return False


def _missing(material: Material, sight: _Sight) -> list[_Missing]:
    """Return what is not in view, the worthiest first, each wording once."""
    extracts = material.extracts
    replaced = material.replaced
    was = {new: extracts[old].value for old, new in replaced.items()}
    mentions = Counter(each.value for each in extracts)
    newest = max((each.seq for each in extracts), default=1)
    in_force = {pin.text for pin in material.pins}
    doubtful, faded = _doubtful(material, sight)
    found: dict[str, _Missing] = {}
    for place, each in enumerate(extracts):
        worth = _WORTH.get((each.kind, each.role))
        if worth is None or place in replaced or each.value in found or sight.shows(each):
            continue
        if each.value in faded or (each.kind == "instruction" and each.value not in in_force):
            continue
        score = worth + math.log2(mentions[each.value]) + each.seq / newest
        old = was.get(place, "")
        stale = bool(old) and sight.shows(each._replace(value=old))
        found[each.value] = _Missing(
            Anchor(each.seq, tell(each, old if stale or len(old) <= WAS_MAX_CHARS else "")),
            Anchor(each.seq, tell(each, old if stale else "")),
            each,
            score + (_STALE_WORTH if stale or each.value in doubtful else 0),
        )
    return sorted(found.values(), key=lambda missing: -missing.score)


def _doubtful(material: Material, sight: _Sight) -> tuple[set[str], set[str]]:
    """Return the user's values that may have replaced one that is in view, for one in a pin, which
    stays in view for long, whatever comes nearest; and those that one in view may have replaced."""
    said = [each for each in material.extracts if each.role == "user" and each.kind == "value"]
    pairs = replaced_values(said, perhaps=True).items()
    found = {said[new].value for old, new in pairs if sight.shows(said[old])}
    faded = {said[old].value for old, new in pairs if sight.shows(said[new])}
    laid_down = {pin.source_seq for pin in material.pins}
    pinned = [at for at, each in enumerate(said) if each.seq in laid_down and sight.shows(each)]
    return found | {said[new].value for new in nearest_later(said, pinned)}, faded


def _choose(missing: Iterable[_Missing], room: int) -> tuple[list[_Missing], str]:
    """Return what fits into `room` tokens, and the block that says it, "" for nothing."""
    used = estimate_text(f"\n\n{HEADING}\n")
    chosen: list[_Missing] = []
    for each in missing:
        if room - used < _LEAST_TOKENS:
            break
        cost = estimate_text(f"- [{each.anchor.seq}] {each.anchor.told}\n") + 1
        if used + cost <= room:
            chosen.append(each)
            used += cost
    while chosen:
        block = render_anchors([each.anchor for each in chosen])
        if estimate_text(f"\n\n{block}") <= room:
            return chosen, block
        chosen.pop()
    return [], ""


def _receipt(
    material: Material, source: Collection[Any], sight: _Sight, restored: Sequence[_Missing]
) -> dict[str, Any]:
    """Return what became of what the source says, for people and for the ledger."""
    back = {each.extract.value for each in restored}
    said = {each.value: each for each in material.extracts if each.row_id in source}
    kept = {value for value, each in said.items() if sight.shows(each)}
    again = (said.keys() - kept) & back
    facts = {value for value, each in said.items() if each.kind in FACTS}
    gone = facts - kept - again
    dropped = [value for value in said if value in gone]
    return {
        "coverage": round(len(kept | again) / len(said), 3) if said else 1.0,
        "identifiers_kept": len(facts & kept),
        "identifiers_restored": len(facts & again),
        "identifiers_dropped": len(dropped),
        "restored": len(restored),
        "dropped": dropped[:NAMED_IN_RECEIPT],
    }
