"""The store: sessions, rows, views, passes and leases in one database file.

`agent/sessions/protocol.py` says what each method promises, the modules beside it how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.base.clock import SYSTEM_CLOCK, Clock
from agent.base.later import later
from agent.base.messages import Message
from agent.sessions import (
    blobs,
    changes,
    cooldowns,
    deletion,
    directory,
    extracts,
    leases,
    native,
    passes,
    pins,
    places,
    rewind,
    search,
    standing,
    terms,
    transfer,
    undo,
)
from agent.sessions.commit import commit_pass, draft_commit
from agent.sessions.location import database_path
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
from agent.sessions.sqlite import Connection, SqliteDatabase

if TYPE_CHECKING:
    from agent.sessions import check, forks, intake, relevant, unseen
else:
    check, forks, intake, relevant, unseen = later(
        "agent.sessions", "check", "forks", "intake", "relevant", "unseen"
    )


class SessionDB:
    """A `SessionStore` on one SQLite file, created and migrated when it is opened. `database` is
    for parts of the store that one surface alone needs.

    Raises: StoreError: the file cannot be opened; SchemaTooNew: a newer program wrote it;
    UsageError: the URL names another kind of database.
    """

    def __init__(
        self,
        db_path: Path | str | None = None,
        *,
        url: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self.database = self._database = SqliteDatabase(database_path(db_path, url), clock)
        self.routes = RouteBook(self.database, clock)

    @property
    def path(self) -> Path:
        """The database file."""
        return self._database.path

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
        new = directory.NewSession(
            session_id,
            source,
            model,
            model_config or {},
            parent_session_id,
            title,
            origin or {},
            cwd,
        )
        with self._database.write() as connection:
            directory.create_session(connection, new, self._clock.now())

    def session(self, session_id: str) -> SessionRecord:
        with self._database.read() as connection:
            return directory.read_session(connection, session_id)

    def find_session(self, name: str) -> SessionRecord:
        with self._database.read() as connection:
            return directory.find_session(connection, name)

    def sessions(self, *, limit: int = 50) -> list[SessionRecord]:
        with self._database.read() as connection:
            return directory.read_sessions(connection, limit)

    def set_title(self, session_id: str, title: str | None) -> None:
        with self._database.write() as connection:
            directory.set_title(connection, session_id, title)

    def set_system_prompt(self, session_id: str, system_prompt: str) -> None:
        with self._database.write() as connection:
            directory.set_system_prompt(connection, session_id, system_prompt)

    def end_session(self, session_id: str, reason: str) -> None:
        with self._database.write() as connection:
            directory.end_session(connection, session_id, reason, self._clock.now())

    def delete_session(self, session_id: str) -> None:
        with self._database.write() as connection:
            deletion.delete_conversation(connection, session_id)

    def fork_session(
        self,
        session_id: str,
        new_id: str,
        *,
        up_to_seq: int | None = None,
        title: str | None = None,
    ) -> SessionRecord:
        fork = forks.Fork(session_id, new_id, up_to_seq, title)
        with self._database.write() as connection:
            return forks.fork_conversation(connection, fork, self._clock.now())

    def export_session(self, session_id: str, out: transfer.LineSink) -> None:
        transfer.export_conversation(self._database, self._clock, session_id, out)

    def import_session(self, source: transfer.LineSource, *, title: str | None = None) -> Imported:
        return intake.import_conversation(self._database, self._clock, source, title)

    # -- rows -------------------------------------------------------------------------------
    def append_message(self, session_id: str, role: str, content: Any, **fields: Any) -> int:
        stored = self.append(session_id, [{"role": role, "content": content, **fields}])
        return int(stored[0]["_row_id"])

    def append(
        self, session_id: str, messages: Sequence[Message], brought: NativePass | None = None
    ) -> list[Message]:
        accepting = native.accepting(messages, brought)
        with self._database.write() as connection:
            return accepting(connection, session_id, self._clock.now())

    def view(self, session_id: str, seen: View | None = None) -> View:
        with self._database.read() as connection:
            return places.read_view(connection, session_id, seen)

    def head(self, session_id: str) -> Head:
        with self._database.read() as connection:
            return places.read_head(connection, session_id)

    def rows_after(self, session_id: str, seq: int) -> list[Message]:
        with self._database.read() as connection:
            return places.read_rows_after(connection, session_id, seq)

    def history(
        self, session_id: str, *, first_seq: int = 1, last_seq: int | None = None
    ) -> list[HistoryRow]:
        with self._database.read() as connection:
            return places.read_history(connection, session_id, first_seq, last_seq)

    def accepted_rows(self, session_id: str, first_seq: int, last_seq: int) -> list[Message]:
        with self._database.read() as connection:
            return places.read_accepted(connection, session_id, first_seq, last_seq)

    def blob(self, sha256: str, offset: int = 0, size: int | None = None) -> bytes:
        with self._database.read() as connection:
            data = blobs.read_blob(connection, sha256)
        return data[offset:] if size is None else data[offset : offset + size]

    def search(
        self, query: str, *, session_id: str | None = None, limit: int = 20
    ) -> list[SearchHit]:
        wanted = terms.parse_query(query)
        if search.backlog(self._database) > search.LARGEST_BACKLOG:
            self.index_pending()
        with self._database.read() as connection:
            return search.find_rows(connection, wanted, session_id, limit)

    def relevant(self, question: str, session_id: str, *, limit: int = 20) -> list[SearchHit]:
        if search.backlog(self._database) > search.LARGEST_BACKLOG:
            self.index_pending()
        with self._database.read() as connection:
            return relevant.rank_rows(connection, question, session_id, limit)

    def unseen(self, session_id: str, *, limit: int = 20) -> list[tuple[int, str]]:
        with self._database.read() as connection:
            return unseen.unseen(connection, session_id, limit)

    def index_pending(self) -> int:
        return search.index_pending(self._database)

    # -- what rows say ----------------------------------------------------------------------
    def extract_pending(self) -> int:
        return extracts.extract_pending(self._database, self._clock)

    def extracts(
        self, session_id: str, *, kinds: Sequence[str] = (), limit: int = 5_000
    ) -> list[StoredExtract]:
        with self._database.read() as connection:
            return extracts.read_extracts(connection, session_id, kinds, limit)

    def add_pin(self, session_id: str, text: str) -> Pin:
        with self._database.write() as connection:
            return pins.add_pin(connection, session_id, text, self._clock.now())

    def retire_pin(self, session_id: str, pin_id: int) -> Pin:
        with self._database.write() as connection:
            return pins.retire_pin(connection, session_id, pin_id, self._clock.now())

    def pins(self, session_id: str) -> list[Pin]:
        with self._database.read() as connection:
            return pins.read_pins(connection, session_id)

    # -- guards -----------------------------------------------------------------------------
    def record_compression_failure_cooldown(
        self, session_id: str, until_epoch: float, error: str | None = None
    ) -> None:
        with self._database.write() as connection:
            conversation_id = places.conversation_of(connection, session_id)
            cooldowns.arm(connection, conversation_id, until_epoch, error, "")

    def get_compression_failure_cooldown(self, session_id: str) -> dict[str, Any] | None:
        with self._database.read() as connection:
            conversation_id = places.conversation_of(connection, session_id)
            return cooldowns.read_cooldown(connection, conversation_id, self._clock.now())

    def clear_compression_failure_cooldown(self, session_id: str) -> None:
        with self._database.write() as connection:
            cooldowns.clear(connection, places.conversation_of(connection, session_id))

    def health(self, session_id: str) -> dict[str, Any]:
        with self._database.read() as connection:
            conversation_id = places.conversation_of(connection, session_id)
            return cooldowns.read_health(connection, conversation_id)

    def settle(self, session_id: str, guards: Guards) -> None:
        with self._database.write() as connection:
            conversation_id = places.conversation_of(connection, session_id)
            cooldowns.write_guards(connection, conversation_id, guards)

    def usage_anchor(self, session_id: str) -> dict[str, Any]:
        with self._database.read() as connection:
            conversation_id = places.conversation_of(connection, session_id)
            return cooldowns.read_anchor(connection, conversation_id)

    def set_usage_anchor(self, session_id: str, anchor: Mapping[str, Any]) -> None:
        with self._database.write() as connection:
            conversation_id = places.conversation_of(connection, session_id)
            cooldowns.write_anchor(connection, conversation_id, anchor)

    # -- lease ------------------------------------------------------------------------------
    def acquire_lease(
        self, session_id: str, *, ttl_s: float = 300.0, ceiling_s: float = 900.0
    ) -> Lease | None:
        terms = leases.Terms(ttl_s, ceiling_s)
        return leases.acquire(self._database, self._clock, session_id, terms)

    def refresh_lease(self, lease: Lease) -> bool:
        with self._database.write() as connection:
            return leases.refresh_lease(connection, lease, self._clock.now())

    def release_lease(self, lease: Lease) -> None:
        leases.give_back(self._database, lease, self._clock.now())

    def get_compression_lock_holder(self, session_id: str) -> str | None:
        with self._database.read() as connection:
            return leases.read_holder(connection, session_id, self._clock.now())

    # -- passes -----------------------------------------------------------------------------
    def open_pass(self, opening: PassOpening) -> None:
        with self._database.write() as connection:
            passes.open_pass(connection, opening, self._clock.now())

    def prepare_pass(self, pass_id: str, plan: Mapping[str, Any]) -> None:
        with self._database.write() as connection:
            passes.prepare_pass(connection, pass_id, plan)

    def prepared_pass(self, session_id: str) -> PassRecord | None:
        with self._database.read() as connection:
            return passes.read_prepared(connection, session_id)

    def adopt_pass(self, pass_id: str, lease: Lease, trigger: str) -> None:
        with self._database.write() as connection:
            passes.adopt_pass(connection, pass_id, lease, trigger)

    def commit_pass(self, commit: PassCommit, admit: Callable[[], bool]) -> View:
        draft = draft_commit(commit)
        with self._database.write() as connection:
            return commit_pass(connection, draft, admit, self._clock.now())

    def close_pass(self, closing: PassClosing) -> None:
        with self._database.write() as connection:
            passes.close_pass(connection, closing, self._clock.now())

    def note_unstarted(
        self,
        session_id: str,
        *,
        status: str,
        failure_class: str,
        trigger: str,
        detail: str = "",
    ) -> PassRecord:
        with self._database.write() as connection:
            return passes.note_unstarted(
                connection,
                session_id,
                status=status,
                failure_class=failure_class,
                trigger=trigger,
                detail=detail,
                now=self._clock.now(),
            )

    def passes(self, session_id: str) -> list[PassRecord]:
        with self._database.read() as connection:
            return passes.read_passes(connection, session_id)

    def spent_since(self, session_id: str, since: float) -> float:
        with self._database.read() as connection:
            return passes.read_spent(connection, session_id, since)

    def pass_record(self, pass_id: str, *, session_id: str | None = None) -> PassRecord:
        with self._database.read() as connection:
            return passes.read_pass(connection, pass_id, places.scope_of(connection, session_id))

    def pass_rows(
        self, pass_id: str, *, session_id: str | None = None
    ) -> tuple[list[Message], list[Message]]:
        with self._database.read() as connection:
            return passes.read_pass_rows(
                connection, pass_id, places.scope_of(connection, session_id)
            )

    def pass_changes(self, pass_id: str, *, session_id: str | None = None) -> PassChanges:
        with self._database.read() as connection:
            scope = places.scope_of(connection, session_id)
            return changes.read_changes(connection, pass_id, scope)

    # -- undo -------------------------------------------------------------------------------
    def undo_pass(
        self, session_id: str, pass_id: str | None = None, *, guards: Guards = NO_GUARDS
    ) -> UndoResult:
        with self._database.write() as connection:
            scope = self._scope(connection, session_id)
            return undo.undo_pass(connection, scope, pass_id, guards)

    def rewind(self, session_id: str, seq: int, *, guards: Guards = NO_GUARDS) -> UndoResult:
        with self._database.write() as connection:
            scope = self._scope(connection, session_id)
            return rewind.rewind(connection, scope, seq, guards)

    def _scope(self, connection: Connection, session_id: str) -> standing.Scope:
        conversation_id = places.conversation_of(connection, session_id)
        return standing.Scope(session_id, conversation_id, self._clock.now())

    # -- care -------------------------------------------------------------------------------
    def check(self) -> CheckReport:
        with self._database.read() as connection:
            return check.check_store(connection)

    def close(self) -> None:
        self._database.close()
