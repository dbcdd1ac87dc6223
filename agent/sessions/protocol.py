"""The store's contract, once. `hermes_state.SessionDB` fulfils it; `tests/sessions/contract.py`
checks any back end against it.

Rows are insert-only: an accepted row keeps its id, seq, time and bytes for ever. The live view is
defined by pointers in `places` and changes only through `commit_pass`, `undo_pass` and `rewind`.
All methods may be called from any thread; none holds a transaction after it returned. Every method
raises `StoreError` when the store cannot be read or written, and `UnknownSession` for a session
that does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from agent.base.messages import Message
from agent.sessions.records import (
    NO_GUARDS,
    CheckReport,
    Guards,
    Head,
    HistoryRow,
    Imported,
    Lease,
    NativePass,
    PassChanges,
    PassClosing,
    PassCommit,
    PassOpening,
    PassRecord,
    Pin,
    SearchHit,
    SessionRecord,
    StoredExtract,
    UndoResult,
    View,
)
from agent.sessions.routes import RouteBook

if TYPE_CHECKING:
    from agent.sessions.transfer import LineSink, LineSource


class SessionStore(Protocol):
    @property
    def routes(self) -> RouteBook:
        """What is known of routes to models, for all conversations together."""
        ...

    # -- sessions ---------------------------------------------------------------------------
    def create_session(
        self,
        session_id: str,
        source: str,
        *,
        model: str | None = None,
        model_config: Mapping[str, Any] | None = None,
        parent_session_id: str | None = None,
        title: str | None = None,
        origin: Mapping[str, Any] | None = None,
        cwd: str | None = None,
    ) -> None:
        """Insert a session with a conversation of its own; an existing id is left as it is."""
        ...

    def session(self, session_id: str) -> SessionRecord:
        """Return one session by its exact id."""
        ...

    def find_session(self, name: str) -> SessionRecord:
        """Return the session with that id, unique id prefix or title, tried in this order; of a
        conversation that a rotation gave another session, the newest one.

        Raises: UnknownSession when none has it or several conversations have an id that begins
        with it (they are named).
        """
        ...

    def sessions(self, *, limit: int = 50) -> list[SessionRecord]:
        """Return the newest session of each conversation, most recently active first."""
        ...

    def set_title(self, session_id: str, title: str | None) -> None:
        """Name a session's conversation. Raises: UsageError when another has that title."""
        ...

    def set_system_prompt(self, session_id: str, system_prompt: str) -> None:
        """Keep the prompt that the session's requests begin with."""
        ...

    def end_session(self, session_id: str, reason: str) -> None:
        """Stamp the end; the first stamp wins. Appends still arrive afterwards."""
        ...

    def delete_session(self, session_id: str) -> None:
        """Delete the whole conversation of a session: sessions, places, passes, pins, extracts,
        index entries, and rows and blobs that no other conversation points at. One transaction."""
        ...

    def fork_session(
        self,
        session_id: str,
        new_id: str,
        *,
        up_to_seq: int | None = None,
        title: str | None = None,
    ) -> SessionRecord:
        """Make a conversation that goes on from a row of this one (None: its last), and return its
        session.

        Its places point at the same rows under the same seqs, live, covered and hidden alike.
        Passes in force keep their ids and can be read and undone in either conversation without
        the other; one that covers or took back anything behind the row is not in force there.
        Taken over are model, prompt, folder, source and pins, not title, origin, brake and lease.
        Raises: UsageError when `new_id` or the title is taken or no row stands up to `up_to_seq`.
        """
        ...

    def export_session(self, session_id: str, out: LineSink) -> None:
        """Write the whole conversation of a session as JSONL that `import_session` reads back, one
        row in memory at a time. Rows accepted meanwhile are not in it."""
        ...

    def import_session(self, source: LineSource, *, title: str | None = None) -> Imported:
        """Take in an exported conversation, whole, in one transaction.

        Seqs, times, view, masks, covered and hidden rows, ledger, pins and extracts are those of
        the original; a name that is taken here (session, pass, title) is given anew, an open pass
        is closed, and brake, health and lease are not taken over. One ledger row of kind `import`
        comes last. A file that is cut off, unreadable or cannot be true from some line on is
        taken up to there, as a fork up to that row would be.
        Raises: UsageError: it is no export, of another version, breaks before its first row, or
        the title is taken; then nothing is stored.
        """
        ...

    # -- rows -------------------------------------------------------------------------------
    def append_message(self, session_id: str, role: str, content: Any, **fields: Any) -> int:
        """Accept one message and return its row id. `fields` are further message keys."""
        ...

    def append(
        self, session_id: str, messages: Sequence[Message], brought: NativePass | None = None
    ) -> list[Message]:
        """Accept messages in one durable transaction and return them as stored, with the pass that
        the last of them brought (`native.py`).

        Shape: copies in order, with `_row_id`, `_seq`, `_tokens`, `_at`. Lone surrogates and NUL
        become U+FFFD; a tool result over 64 KiB comes back as an excerpt with `_blob`, its whole
        bytes kept. The caller's dicts are not touched. Never waits for a lease or a summary.
        """
        ...

    def view(self, session_id: str, seen: View | None = None) -> View:
        """Return the live view, oldest first; what stands of one that was `seen` is not read."""
        ...

    def head(self, session_id: str) -> Head:
        """Return generation and watermark: equal numbers mean an equal view."""
        ...

    def rows_after(self, session_id: str, seq: int) -> list[Message]:
        """Return live messages with a higher seq, oldest first."""
        ...

    def history(
        self, session_id: str, *, first_seq: int = 1, last_seq: int | None = None
    ) -> list[HistoryRow]:
        """Return every place of a seq range, rows that passes made included, by seq; an accepted
        row stands before the row a pass made at the same seq. Contents are whole."""
        ...

    def accepted_rows(self, session_id: str, first_seq: int, last_seq: int) -> list[Message]:
        """Return accepted rows of a seq range byte-exact (blobs resolved), oldest first; rows that
        passes made and rows hidden by a rewind are left out."""
        ...

    def blob(self, sha256: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return a slice of a stored blob. Raises: StoreError when there is none."""
        ...

    def search(
        self, query: str, *, session_id: str | None = None, limit: int = 20
    ) -> list[SearchHit]:
        """Return accepted rows that hold every word of the query, newest first.

        A word matches inside longer words from three characters on, CJK from two; case does not
        matter; a quoted phrase matches as it stands. Covered rows are found, hidden ones are not.
        Rows that are not indexed yet are looked through too. Raises: UsageError for an empty query.
        """
        ...

    def relevant(self, question: str, session_id: str, *, limit: int = 20) -> list[SearchHit]:
        """Return a session's rows that say most of a question's words, the best first.

        Rare words count more than common ones, people's words more than what tools print, and of
        equals the newest wins. A question with a quoted phrase is a `search`. Raises: UsageError
        for an empty one.
        """
        ...

    def unseen(self, session_id: str, *, limit: int = 20) -> list[tuple[int, str]]:
        """Return (seq, part) of rows that left the view, for a question that no row answers: the
        user's (an empty part: the whole row), newest first, and things that others printed, those
        of rare shapes first, in turn. Rows not extracted yet give no things."""
        ...

    def index_pending(self) -> int:
        """Index rows accepted since the last call; return how many. Called after a turn."""
        ...

    # -- what rows say ------------------------------------------------------------------------
    def extract_pending(self) -> int:
        """Extract from rows accepted since the last call, recognise and retire pins; return how
        many rows. Called after a turn and before a plan; appends go on meanwhile."""
        ...

    def extracts(
        self, session_id: str, *, kinds: Sequence[str] = (), limit: int = 5_000
    ) -> list[StoredExtract]:
        """Return what accepted rows that are not hidden say, newest row first, in a row by place;
        of some `kinds` or of all. Rows not extracted yet are missing."""
        ...

    def add_pin(self, session_id: str, text: str) -> Pin:
        """Pin a standing instruction by hand; one with the same words is returned as it is.
        Raises: UsageError for a blank text and for one that holds a secret."""
        ...

    def retire_pin(self, session_id: str, pin_id: int) -> Pin:
        """Take a pin off by hand, with every one that says the same, and return it.
        Raises: UsageError when the conversation has no such pin in force."""
        ...

    def pins(self, session_id: str) -> list[Pin]:
        """Return the pins in force, oldest first; of those with the same words the newest.
        One whose source is hidden by a rewind is not in force."""
        ...

    # -- guards -----------------------------------------------------------------------------
    def record_compression_failure_cooldown(
        self, session_id: str, until_epoch: float, error: str | None = None
    ) -> None:
        """Arm the brake: the later deadline wins, the newest error stays."""
        ...

    def get_compression_failure_cooldown(self, session_id: str) -> dict[str, Any] | None:
        """Return the running cooldown, or None.

        Shape: `cooldown_until`, `remaining_seconds`, `error`, `failure_class`.
        """
        ...

    def clear_compression_failure_cooldown(self, session_id: str) -> None:
        """Release the brake."""
        ...

    def health(self, session_id: str) -> dict[str, Any]:
        """Return the conversation's health record; empty when nothing ever failed."""
        ...

    def settle(self, session_id: str, guards: Guards) -> None:
        """Write guards outside a pass (model switch, verdict of a later real count)."""
        ...

    def usage_anchor(self, session_id: str) -> dict[str, Any]:
        """Return the last usage anchor, empty without one. Commits clear it but for `ratio`."""
        ...

    def set_usage_anchor(self, session_id: str, anchor: Mapping[str, Any]) -> None:
        """Keep the provider's newest count."""
        ...

    # -- lease ------------------------------------------------------------------------------
    def acquire_lease(
        self, session_id: str, *, ttl_s: float = 300.0, ceiling_s: float = 900.0
    ) -> Lease | None:
        """Take the right to compact a conversation, or return None while another holds it.

        An expired lease, or one whose process on this host is gone (pid and start time), is
        replaced at once. The token grows at each acquisition. Attempts left `planned` without a
        live lease are closed `aborted`, class `crashed`, in the same transaction.
        """
        ...

    def refresh_lease(self, lease: Lease) -> bool:
        """Prolong by the TTL it was taken with, never past the ceiling; False when it is lost."""
        ...

    def release_lease(self, lease: Lease) -> None:
        """Give it back if it is still this one. Idempotent."""
        ...

    def get_compression_lock_holder(self, session_id: str) -> str | None:
        """Return who holds the lease, or None when nobody does."""
        ...

    # -- passes -----------------------------------------------------------------------------
    def open_pass(self, opening: PassOpening) -> None:
        """Insert the ledger row of an attempt. Raises: LeaseLost; StoreError when another attempt
        of the conversation is planned or prepared."""
        ...

    def prepare_pass(self, pass_id: str, plan: Mapping[str, Any]) -> None:
        """Keep plan, text and `cost` (`prepared`): what was paid for survives a crash."""
        ...

    def prepared_pass(self, session_id: str) -> PassRecord | None:
        """Return the conversation's prepared pass, if there is one."""
        ...

    def adopt_pass(self, pass_id: str, lease: Lease, trigger: str) -> None:
        """Move a prepared pass under a new lease so that it can be committed."""
        ...

    def commit_pass(self, commit: PassCommit, admit: Callable[[], bool]) -> View:
        """Publish a pass and return the new view.

        One transaction in this order: write lock; `admit()` (the fence); lease token; every
        covered or masked place still live with the mask that was seen; pending rows (none may
        have been accepted after the watermark while there are any); pointers; new row;
        generation + 1; guards; ledger row closed.
        With `child_session_id` the same transaction ends the conversation's session (reason
        `compression`) and lets a new one of that id carry on title, model, prompt, origin and
        folder; the older ids stay names of the conversation.
        Raises: PassRefused, LeaseLost, PassSuperseded; then nothing is changed.
        """
        ...

    def close_pass(self, closing: PassClosing) -> None:
        """End an attempt without a commit; guards are written in the same transaction."""
        ...

    def note_unstarted(
        self, session_id: str, *, status: str, failure_class: str, trigger: str, detail: str = ""
    ) -> PassRecord:
        """Count an attempt that was `skipped` or `blocked`: one ledger row for each class until
        the conversation's generation or guards change."""
        ...

    def passes(self, session_id: str) -> list[PassRecord]:
        """Return the ledger of a session's conversation, oldest first."""
        ...

    def spent_since(self, session_id: str, since: float) -> float:
        """Return the dollars that attempts of the conversation have cost which ended, or were
        prepared, at or after an instant. Rows without a known cost count nothing."""
        ...

    def pass_record(self, pass_id: str, *, session_id: str | None = None) -> PassRecord:
        """Return one ledger row by id or unique prefix: that of the session's conversation, or of
        the oldest that has it, since forks inherit passes. Raises: UnknownPass."""
        ...

    def pass_rows(
        self, pass_id: str, *, session_id: str | None = None
    ) -> tuple[list[Message], list[Message]]:
        """Return (rows it covers, whole, oldest first; rows it made), looked up like
        `pass_record`; it covers nothing once it was undone."""
        ...

    def pass_changes(self, pass_id: str, *, session_id: str | None = None) -> PassChanges:
        """Return what a pass took out of the view and what it put there, looked up like
        `pass_record`. Of a pass that was undone only the rows are left that it had made."""
        ...

    # -- undo -------------------------------------------------------------------------------
    def undo_pass(
        self, session_id: str, pass_id: str | None = None, *, guards: Guards = NO_GUARDS
    ) -> UndoResult:
        """Undo a pass by id or unique prefix; None takes the newest compaction in the view.

        One transaction: the lease is taken over and an open pass superseded; passes that cover or
        mask a row this one made are undone first, newest first; rows it made are hidden, then its
        places freed, unmasked or shown again. Each pass undone is one ledger row of kind `undo`
        with `target_pass`. Rows accepted since are not touched.
        Raises: UnknownPass; UndoRefused when it is no committed pass of this conversation, is
        undone already, is itself an undo, or is a rewind after which a row was accepted.
        """
        ...

    def rewind(self, session_id: str, seq: int, *, guards: Guards = NO_GUARDS) -> UndoResult:
        """Hide every place from row `seq` on, after undoing the passes that reach across it.

        One transaction, as `undo_pass`; its own ledger row, kind `rewind`, comes last. It can be
        undone while nothing was accepted after it; passes undone for it stay undone.
        Raises: UsageError when nothing is shown or covered from that row on.
        """
        ...

    # -- care -------------------------------------------------------------------------------
    def check(self) -> CheckReport:
        """Check every law that can be checked on disk."""
        ...

    def close(self) -> None:
        """Close connections. Idempotent."""
        ...
