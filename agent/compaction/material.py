"""What the store knows of a conversation when a pass is planned, read without its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from agent.base.record import dataclass
from agent.compaction.pins import choose_pins
from agent.compaction.retain import Standing
from agent.compaction.values import is_value, replaced_values
from agent.sessions.protocol import SessionStore
from agent.sessions.records import Pin, StoredExtract

MOST_EXTRACTS = 8_000
"""Newest extracts that a plan looks at; of what the user said itself as many again."""
_SPOKEN = (
    *("instruction", "withdrawal", "decision", "value", "promise", "question"),
    *("task", "call", "outcome"),
)


@dataclass(frozen=True)
class Material:
    """Extracts newest row first, and the pins in force."""

    extracts: Sequence[StoredExtract] = ()
    pins: Sequence[Pin] = ()

    @cached_property
    def replaced(self) -> Mapping[int, int]:
        """Which extract replaced which, as `replaced_values` says."""
        return replaced_values(self.extracts)

    def standing(self, pin_tokens: int) -> Standing:
        """Return which of the user's rows lay down what still holds, take something back or decide,
        and what of them stands in each request as a pin."""
        kinds = ("withdrawal", "decision")
        said = {each.seq for each in self.extracts if each.kind in kinds and each.role == "user"}
        pinned: dict[int, str] = {}
        for pin in choose_pins(self.pins, pin_tokens)[0]:
            if pin.source_seq is not None:
                pinned[pin.source_seq] = f"{pinned.get(pin.source_seq, '')} {pin.text}"
        laid_down = {pin.source_seq or 0 for pin in self.pins}
        unsaid = laid_down - pinned.keys()
        anew = {self.extracts[new].seq for new in self.replaced.values()}
        return Standing(said | laid_down, self._outdated() - unsaid, anew, pinned)

    def _outdated(self) -> frozenset[int]:
        """Return the user's rows all of whose values were replaced."""
        gone, left = set[int](), set[int]()
        for place, each in enumerate(self.extracts):
            if each.role == "user" and is_value(each):
                (gone if place in self.replaced else left).add(each.seq)
        return frozenset(gone - left)


def read_material(store: SessionStore, session_id: str) -> Material:
    """Return what rows say, after extracting from those that have not been yet."""
    store.extract_pending()
    extracts = store.extracts(session_id, limit=MOST_EXTRACTS)
    if len(extracts) == MOST_EXTRACTS:
        oldest = extracts[-1].seq
        spoken = store.extracts(session_id, kinds=_SPOKEN, limit=MOST_EXTRACTS)
        extracts = [*extracts, *(each for each in spoken if each.seq < oldest)]
    return Material(extracts, store.pins(session_id))
