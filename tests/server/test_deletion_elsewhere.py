"""A conversation that another process deletes while the server has it warm, and a new one that gets
its number."""

from __future__ import annotations

from agent.testing.builders import user
from agent.testing.stub_reply import Reply
from hermes_state import SessionDB
from tests.server.served import Served, error_of


def delete_elsewhere(served: Served, session: str) -> int:
    """Delete a session as another process does; return the number of its conversation."""
    store = SessionDB(served.path / "served.db")
    try:
        number = store.session(session).conversation_id
        store.delete_session(session)
    finally:
        store.close()
    return number


def test_a_new_conversation_with_the_number_of_a_deleted_one_is_its_own(served: Served) -> None:
    first = served.chat(user("one")).headers["x-hermes-session"]
    number = delete_elsewhere(served, first)
    served.stub.script([Reply(text="second")])
    answer = served.chat(user("two"))
    assert answer.status_code == 200, answer.text
    second = answer.headers["x-hermes-session"]
    assert served.store.session(second).conversation_id == number
    assert served.rows(second) == [("user", "two"), ("assistant", "second")]
    assert served.chat(user("three"), session=second).status_code == 200
    assert [text for _role, text in served.rows(second)] == ["two", "second", "three", "ok"]


def test_a_deleted_conversation_is_not_found(served: Served) -> None:
    session = served.chat(user("one")).headers["x-hermes-session"]
    delete_elsewhere(served, session)
    answer = served.chat(user("two"), session=session)
    assert error_of(answer) == (404, "invalid_request_error", "session_not_found")
