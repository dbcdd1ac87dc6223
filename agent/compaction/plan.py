"""What a pass will do, as a record that survives a crash and becomes a commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from agent.base.messages import Message, wire_message
from agent.base.record import dataclass
from agent.base.seqs import seq_ranges
from agent.compaction.attempt import Candidate, Changes, Mask
from agent.compaction.budget import row_tokens, total_tokens
from agent.sessions.records import (
    Guards,
    Lease,
    MaskedPlace,
    NewRow,
    PassCommit,
    PassKind,
    View,
)


@dataclass(frozen=True)
class Plan:
    """The whole effect of a pass on the view it was planned for.

    Rows are named by `_row_id`; `cover_pending` by index into the pending messages. Everything but
    pending rows can be adopted after a restart. `model` and `route` wrote the summary, if one did.
    """

    kind: PassKind
    strategy: str
    watermark: int
    cover: tuple[int, ...] = ()
    cover_pending: tuple[int, ...] = ()
    mask: tuple[MaskedPlace, ...] = ()
    seen_masks: Mapping[int, str] = field(default_factory=dict)
    new_row: Message | None = None
    failure_class: str = ""
    tokens_after: int = 0
    messages_after: int = 0
    cost: float | None = None
    model: str = ""
    route: str = ""
    summary_ms: int = 0
    receipt: Mapping[str, Any] = field(default_factory=dict)
    preview: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form that the ledger keeps while the pass is prepared."""
        return {
            **{key: value for key, value in vars(self).items() if key not in _ENCODED},
            "kind": self.kind.value,
            "cover": list(self.cover),
            "cover_pending": list(self.cover_pending),
            "mask": [vars(place) for place in self.mask],
            "seen_masks": {str(row_id): mask for row_id, mask in self.seen_masks.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Plan:
        """Return what `to_dict` gave."""
        return cls(
            **{key: value for key, value in data.items() if key not in _ENCODED},
            kind=PassKind(data["kind"]),
            cover=tuple(data["cover"]),
            cover_pending=tuple(data["cover_pending"]),
            mask=tuple(MaskedPlace(**place) for place in data["mask"]),
            seen_masks={int(row_id): mask for row_id, mask in data["seen_masks"].items()},
        )

    def still_holds(self, messages: Sequence[Message]) -> bool:
        """Return whether every row it would cover or mask is live with the mask that was seen."""
        masks = {message["_row_id"]: message.get("_masked_by") for message in messages}
        masked = [place.row_id for place in self.mask]
        return not self.cover_pending and all(
            row_id in masks and masks[row_id] == self.seen_masks.get(row_id)
            for row_id in (*self.cover, *masked)
        )

    def changes(self, messages: Sequence[Message]) -> Changes:
        """Return what it changes of a view for which it still holds."""
        refs = {message["_row_id"]: ref for ref, message in enumerate(messages)}
        covered = {refs[row_id] for row_id in self.cover}
        return Changes(
            kind=self.kind,
            kept=tuple(ref for ref in range(len(messages)) if ref not in covered),
            covered=tuple(sorted(covered)),
            masked=tuple(Mask(refs[place.row_id], place.stub, place.tokens) for place in self.mask),
            new_row=self.new_row,
        )

    def commit(
        self,
        pass_id: str,
        lease: Lease,
        *,
        pending: Sequence[Message],
        guards: Guards,
        durations: Mapping[str, int],
        child_session_id: str = "",
        seen: View | None = None,
    ) -> PassCommit:
        """Return the commit of this plan."""
        new_row = NewRow(self.new_row, self.kind) if self.new_row is not None else None
        return PassCommit(
            pass_id=pass_id,
            lease=lease,
            kind=self.kind,
            strategy=self.strategy,
            watermark=self.watermark,
            cover=self.cover,
            mask=self.mask,
            pending=tuple(wire_message(message) for message in pending),
            cover_pending=self.cover_pending,
            seen_masks=self.seen_masks,
            new_row=new_row,
            guards=guards,
            receipt=self.receipt,
            tokens_after=self.tokens_after,
            messages_after=self.messages_after,
            cost=self.cost,
            durations=durations,
            failure_class=self.failure_class,
            child_session_id=child_session_id,
            seen=seen,
        )


_ENCODED = frozenset({"kind", "cover", "cover_pending", "mask", "seen_masks"})


def make_plan(
    inputs: Sequence[Message],
    changes: Changes,
    candidate: Sequence[Message],
    *,
    watermark: int,
    preview: bool = False,
    conserved: Mapping[str, Any] | None = None,
) -> Plan:
    """Return the plan of a candidate whose changes of `inputs` are known.

    `conserved` is what the receipt says beside sizes: what was kept, restored, dropped and cited.
    """
    stored = sum("_row_id" in message for message in inputs)
    made = candidate if isinstance(candidate, Candidate) else Candidate(candidate)
    masked = {mask.ref: mask for mask in changes.masked}
    kept = sum(
        masked[ref].tokens if ref in masked else row_tokens(inputs[ref]) for ref in changes.kept
    )
    tokens_after = kept + (row_tokens(changes.new_row) if changes.new_row else 0)
    return Plan(
        kind=changes.kind,
        strategy=",".join(made.strategy) or "engine",
        watermark=watermark,
        cover=tuple(inputs[ref]["_row_id"] for ref in changes.covered if ref < stored),
        cover_pending=tuple(ref - stored for ref in changes.covered if ref >= stored),
        mask=tuple(
            MaskedPlace(inputs[mask.ref]["_row_id"], mask.stub, mask.tokens)
            for mask in changes.masked
        ),
        seen_masks={
            inputs[ref]["_row_id"]: inputs[ref]["_masked_by"]
            for ref in changes.covered
            if inputs[ref].get("_masked_by")
        },
        new_row=changes.new_row,
        failure_class=made.failure_class,
        tokens_after=tokens_after,
        messages_after=len(changes.kept) + (changes.new_row is not None),
        cost=made.cost,
        model=made.model,
        route=made.route,
        summary_ms=made.summary_ms,
        receipt=_receipt(inputs, changes, made, tokens_after) | dict(conserved or {}),
        preview=preview,
    )


def _receipt(
    inputs: Sequence[Message], changes: Changes, made: Candidate, tokens_after: int
) -> dict[str, Any]:
    """Return what the pass did, for people: seqs, sizes, rungs and why a digest stood in."""
    return {
        "covered": seq_ranges(inputs[ref].get("_seq", 0) for ref in changes.covered),
        "masked": seq_ranges(inputs[mask.ref].get("_seq", 0) for mask in changes.masked),
        "tokens_before": total_tokens(inputs),
        "tokens_after": tokens_after,
        "strategy": list(made.strategy),
        "reason": made.failure_class,
        "summary_model": made.model,
        "summary_calls": made.chunks,
        "summary_tokens": made.tokens_out,
    }
