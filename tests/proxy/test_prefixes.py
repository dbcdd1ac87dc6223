"""A conversation is found by the whole history of a client, and never taken for another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from agent.base.clock import SYSTEM_CLOCK
from agent.base.messages import Message
from agent.server.proxy_chain import chain, owner_digest
from agent.sessions.blobs import INLINE_BYTES
from agent.sessions.prefixes import History, Standing, accept_history, expect_history
from hermes_state import SessionDB


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def answer(text: str) -> Message:
    return {"role": "assistant", "content": text}


def history(*messages: Message, key: str = "one", **fields: object) -> History:
    made = History(owner_digest(key), chain(messages, start="m"), messages)
    return replace(made, **fields)  # type: ignore[arg-type]  # fields of History


def take(store: SessionDB, told: History) -> Standing:
    return accept_history(store.database, SYSTEM_CLOCK, told)


def texts(store: SessionDB, standing: Standing) -> list[object]:
    return [row["content"] for row in store.view(standing.session_id).messages]


def test_a_longer_history_goes_on_and_stores_only_what_is_new(store: SessionDB) -> None:
    first = take(store, history(user("a")))
    second = take(store, history(user("a"), answer("b"), user("c")))
    assert (first.made, first.appended, second.made, second.appended) == ("new", 1, "", 2)
    assert second.session_id == first.session_id
    assert [row["_seq"] for row in store.view(first.session_id).messages] == [1, 2, 3]


def test_what_is_expected_is_what_comes(store: SessionDB) -> None:
    take(store, history(user("a"), answer("b")))
    told = history(user("a"), answer("b"), user("c"), user("d"), system_prompt="p")
    expected = expect_history(store.database, told)
    assert expected is not None
    standing = accept_history(store.database, SYSTEM_CLOCK, told, expected)
    assert (standing, texts(store, standing)) == (expected.standing, ["a", "b", "c", "d"])


def test_nothing_is_expected_of_what_does_not_just_go_on(store: SessionDB) -> None:
    take(store, history(user("a"), answer("b"), user("c"), answer("d")))
    rewound = take(store, history(user("x"), answer("y"), user("z")))
    store.rewind(rewound.session_id, 3)
    large = {"role": "tool", "tool_call_id": "t", "content": "x" * (INLINE_BYTES + 1)}
    told = {
        "new": history(user("n")),
        "an edit": history(user("a"), answer("b"), user("C")),
        "a retry": history(user("a"), answer("b"), user("c")),
        "after a rewind": history(user("x"), answer("y"), user("z"), user("!")),
        "a blob": history(user("a"), answer("b"), user("c"), answer("d"), large),
    }
    expected = {name: expect_history(store.database, one) for name, one in told.items()}
    assert expected == dict.fromkeys(told)


def test_what_came_otherwise_than_expected_is_kept_beside(store: SessionDB) -> None:
    take(store, history(user("a"), answer("b")))
    told = history(user("a"), answer("b"), user("c"))
    expected = expect_history(store.database, told)
    first = take(store, history(user("a"), answer("b"), user("other")))
    second = accept_history(store.database, SYSTEM_CLOCK, told, expected)
    assert (texts(store, first), second.made) == (["a", "b", "other"], "fork")
    assert texts(store, second) == ["a", "b", "c"]


def test_the_same_history_twice_writes_nothing(store: SessionDB) -> None:
    first = take(store, history(user("a"), system_prompt="p"))
    assert take(store, history(user("a"), system_prompt="p")) == replace(first, appended=0, made="")


def test_a_changed_system_prompt_is_kept_and_forks_nothing(store: SessionDB) -> None:
    first = take(store, history(user("a"), system_prompt="one"))
    second = take(store, history(user("a"), system_prompt="two"))
    assert second.session_id == first.session_id
    assert store.session(first.session_id).system_prompt == "two"


def test_an_edited_message_forks_before_it(store: SessionDB) -> None:
    first = take(store, history(user("a"), answer("b"), user("c"), answer("d")))
    second = take(store, history(user("a"), answer("b"), user("C")))
    assert (second.made, second.appended) == ("fork", 1)
    assert texts(store, second) == ["a", "b", "C"]
    assert texts(store, first) == ["a", "b", "c", "d"]
    assert store.session(second.session_id).parent_session_id == first.session_id


def test_both_branches_go_on_by_themselves(store: SessionDB) -> None:
    first = take(store, history(user("a"), answer("b"), user("c")))
    second = take(store, history(user("a"), answer("b"), user("C")))
    one = take(store, history(user("a"), answer("b"), user("c"), answer("d"), user("e")))
    two = take(store, history(user("a"), answer("b"), user("C"), answer("D"), user("E")))
    assert (one.session_id, two.session_id) == (first.session_id, second.session_id)
    assert texts(store, two) == ["a", "b", "C", "D", "E"]


def test_an_answer_asked_for_again_is_a_fork_that_a_retry_finds(store: SessionDB) -> None:
    first = take(store, history(user("a"), answer("b")))
    again = take(store, history(user("a")))
    retried = take(store, history(user("a")))
    assert (again.made, retried.made, retried.session_id) == ("fork", "", again.session_id)
    assert texts(store, take(store, history(user("a"), answer("B")))) == ["a", "B"]
    assert texts(store, take(store, history(user("a"), answer("b"), user("c")))) == ["a", "b", "c"]
    assert texts(store, first) == ["a", "b", "c"]


def test_callers_with_other_keys_never_share_a_conversation(store: SessionDB) -> None:
    first = take(store, history(user("a"), key="one"))
    second = take(store, history(user("a"), answer("b"), user("c"), key="two"))
    assert (second.made, second.conversation_id != first.conversation_id) == ("new", True)
    assert texts(store, first) == ["a"]


def test_a_partial_answer_is_left_out_once_the_client_has_gone_on(store: SessionDB) -> None:
    first = take(store, history(user("a"), answer("whole"), user("c")))
    late = take(store, history(user("a"), answer("wh"), tip_only=True))
    assert (late.session_id, late.appended, late.made) == (first.session_id, 0, "")
    assert len(store.sessions()) == 1


def test_rows_that_a_person_took_back_are_taken_from_the_client_anew(store: SessionDB) -> None:
    first = take(store, history(user("a"), answer("b"), user("c")))
    store.rewind(first.session_id, 2)
    second = take(store, history(user("a"), answer("b"), user("c"), answer("d")))
    assert (second.made, texts(store, second)) == ("fork", ["a", "b", "c", "d"])


def test_a_conversation_taken_back_whole_begins_anew(store: SessionDB) -> None:
    first = take(store, history(user("a")))
    store.rewind(first.session_id, 1)
    second = take(store, history(user("a")))
    assert (second.made, texts(store, second)) == ("new", ["a"])


def test_a_deleted_conversation_is_forgotten(store: SessionDB) -> None:
    first = take(store, history(user("a")))
    store.delete_session(first.session_id)
    assert take(store, history(user("a"), answer("b"))).made == "new"


def test_equal_requests_side_by_side_make_one_conversation(store: SessionDB) -> None:
    told = history(user("a"), answer("b"), user("c"))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: take(store, told), range(16)))
    assert len({standing.session_id for standing in found}) == 1
    assert sum(standing.appended for standing in found) == 3


def test_other_answers_side_by_side_are_branches(store: SessionDB) -> None:
    first = take(store, history(user("a")))
    with ThreadPoolExecutor(8) as pool:
        found = list(
            pool.map(lambda n: take(store, history(user("a"), answer(f"answer {n}"))), range(8))
        )
    assert sorted(texts(store, one)[1] for one in found) == [  # type: ignore[type-var]  # texts
        f"answer {n}" for n in range(8)
    ]
    assert first.session_id in {standing.session_id for standing in found}


def test_a_history_lives_on_in_another_process(store: SessionDB) -> None:
    first = take(store, history(user("a"), answer("b")))
    other = SessionDB(store.path)
    try:
        second = take(other, history(user("a"), answer("b"), user("c")))
    finally:
        other.close()
    assert (second.session_id, second.made) == (first.session_id, "")
