"""An independent log of what a conversation accepted, compared with the store and with requests.

It reads the store only through `agent/sessions/protocol.py` and keeps its own copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import orjson

from agent.base.messages import Message, call_ids, clean_value, copy_message, text_of, wire_message
from agent.base.record import dataclass
from agent.sessions.protocol import SessionStore
from agent.sessions.records import HistoryRow, RowState
from agent.testing.stub_reply import RecordedRequest
from agent.testing.stub_strict import check_messages


@dataclass(frozen=True)
class _Entry:
    fields: Message
    whole: bool
    """Whether the stored row must have no other visible field."""


class Oracle:
    """The log of one conversation; every check raises AssertionError with the first difference.

    The store is given to each call, so that a log outlives a crash and a reopening.
    """

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self._log: list[_Entry] = []
        self._identities: list[tuple[int, int, float]] = []
        self._rewinds: dict[str, tuple[int, int]] = {}
        self._undone: set[str] = set()

    @property
    def accepted(self) -> list[Message]:
        """What was accepted so far, oldest first, also what a rewind hides, as it must be kept."""
        return [copy_message(entry.fields) for entry in self._log]

    def append(self, store: SessionStore, messages: Sequence[Message]) -> list[Message]:
        """Append through the store, log what it accepted, and return the stored messages."""
        given = [_as_accepted(message) for message in messages]
        stored = store.append(self.session_id, messages)
        self._log.extend(_Entry(fields, whole=True) for fields in given)
        return stored

    def note(self, *messages: Message) -> None:
        """Log messages that something else appended; only the fields given here are compared."""
        self._log.extend(_Entry(_as_accepted(message), whole=False) for message in messages)

    def note_rewind(self, pass_id: str, from_seq: int) -> None:
        """Log that what was accepted so far is hidden from a row on."""
        self._rewinds[pass_id] = from_seq, len(self._log)

    def note_undo(self, *pass_ids: str) -> None:
        """Log that passes, rewinds among them, are not in force any more."""
        for pass_id in pass_ids:
            if self._rewinds.pop(pass_id, None) is None:
                self._undone.add(pass_id)

    def check_store(self, store: SessionStore) -> None:
        """Check that every accepted message is there: byte-exact, in order, with the identity it
        had at the check before, in exactly one state, hidden only by a rewind in force, and that
        the store finds itself sound."""
        history = store.history(self.session_id)
        rows = [place.message for place in history if place.made_by is None]
        _equal(len(rows), len(self._log), "number of accepted rows")
        for index, (row, entry) in enumerate(zip(rows, self._log, strict=True)):
            _equal(_visible(row, entry), entry.fields, f"accepted row {index}")
        identities = [(row["_row_id"], row["_seq"], row["_at"]) for row in rows]
        known = len(self._identities)
        _equal(identities[:known], self._identities, "row ids, seqs and times seen before")
        seqs = [seq for _row_id, seq, _at in identities]
        _equal(seqs, sorted(set(seqs)), "seqs of accepted rows")
        self._identities = identities
        self._check_hidden(store, history)
        self._check_states(store, history)
        self.check_view(store)
        _equal(list(store.check().problems), [], "problems that the store finds")

    def check_union(self, store: SessionStore) -> None:
        """Check that the accepted rows, hidden ones too, are those of the log in whatever order:
        for several writers, none of whom knows when the others wrote."""
        history = store.history(self.session_id)
        rows = (place.message for place in history if place.made_by is None)
        stored = Counter(_bytes_of(wire_message(row)) for row in rows)
        logged = Counter(_bytes_of(wire_message(entry.fields)) for entry in self._log)
        _equal(stored - logged, Counter(), "rows that nobody wrote")
        _equal(logged - stored, Counter(), "rows that are lost")

    def check_view(self, store: SessionStore) -> None:
        """Check that in the live view each call has its result and each result its call."""
        messages = store.view(self.session_id).messages
        calls = [call_id for message in messages for call_id in call_ids(message)]
        results = [
            str(message["tool_call_id"]) for message in messages if message["role"] == "tool"
        ]
        _equal(Counter(results), Counter(calls), "tool results of the view against its calls")

    def check_request(self, request: RecordedRequest, *, newest: str = "") -> None:
        """Check that a request is valid for the strictest provider and, when `newest` is given,
        that its last user message ends with it verbatim."""
        refusal = check_messages(request.messages)
        _equal(refusal and refusal.message, None, "what a strict provider says to the request")
        users = [message for message in request.messages if message["role"] == "user"]
        if newest and not text_of(users[-1]["content"]).endswith(newest):
            raise AssertionError(
                f"the newest request {newest!r:.200} does not end the last user row"
            )

    def _check_hidden(self, store: SessionStore, history: Sequence[HistoryRow]) -> None:
        """What a rewind in force took back is hidden, and nothing else that was accepted."""
        seqs = [seq for _row_id, seq, _at in self._identities]
        taken_back = {
            seq
            for from_seq, known in self._rewinds.values()
            for seq in seqs[:known]
            if seq >= from_seq
        }
        accepted = [place for place in history if place.made_by is None]
        hidden = {place.message["_seq"] for place in accepted if place.state is RowState.HIDDEN}
        _equal(hidden, taken_back, "seqs of hidden rows against what was taken back")
        readable = store.accepted_rows(self.session_id, 1, seqs[-1] if seqs else 0)
        shown = [row["_seq"] for row in readable]
        _equal(shown, [seq for seq in seqs if seq not in taken_back], "seqs of readable rows")

    def _check_states(self, store: SessionStore, history: Sequence[HistoryRow]) -> None:
        """Every row is shown, hidden, or covered by a pass in force; what is shown is the view."""
        shown, stray = [], []
        for place in history:
            row_id = place.message["_row_id"]
            if place.state in (RowState.LIVE, RowState.MASKED):
                shown.append(row_id)
            if place.state is RowState.HIDDEN:
                continue
            is_covered, covering = place.state is RowState.COMPACTED, place.compacted_by
            if is_covered != (covering is not None) or self._undone & {covering, place.made_by}:
                stray.append(row_id)
        _equal(stray, [], "rows whose state does not name one pass in force")
        view = [message["_row_id"] for message in store.view(self.session_id).messages]
        _equal(shown, view, "live rows of the history against the view")


def _as_accepted(message: Message) -> Message:
    kept = wire_message(message)
    if "_reasoning" in message:
        kept["_reasoning"] = message["_reasoning"]
    cleaned: Message = clean_value(kept)
    return cleaned


def _visible(row: Message, entry: _Entry) -> Message:
    names = entry.fields if not entry.whole else {**wire_message(row), **entry.fields}
    return {name: row[name] for name in names if name in row}


def _bytes_of(message: Message) -> bytes:
    return orjson.dumps(message, option=orjson.OPT_SORT_KEYS)


def _equal(actual: object, expected: object, what: str) -> None:
    if actual != expected:
        raise AssertionError(f"{what}: {actual!r:.2000} is not {expected!r:.2000}")
