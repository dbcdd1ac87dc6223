"""Messages become columns and come back as they were."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.errors import UsageError
from agent.base.ids import new_turn_id
from agent.base.messages import Message, clean_value
from agent.sessions.rows import STORE_KEYS, decode_row, encode_row
from hermes_state import SessionDB

texts = st.text(max_size=40)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
parts = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": texts})
    | st.fixed_dictionaries({"type": st.just("image_url"), "image_url": values}),
    max_size=3,
)
calls = st.lists(
    st.fixed_dictionaries(
        {
            "id": texts,
            "type": st.just("function"),
            "function": st.fixed_dictionaries({"name": texts, "arguments": texts}),
        }
    ),
    max_size=3,
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool"])},
    optional={
        "content": texts | st.none() | parts,
        "tool_calls": calls | st.none(),
        "tool_call_id": texts | st.none(),
        "name": texts | st.none(),
        "_reasoning": texts | values,
        "_model": texts | st.none(),
        "_finish_reason": texts | st.none(),
        "_usage": values,
        "_seen": st.integers(0, 99),
        "refusal": values,
        "audio": values,
    },
)


def _column_form(message: Message) -> Message:
    """Return the message after a walk through the columns, without the keys the store gives."""
    role, content, extra, tool_calls, call_id, name, reasoning, model, finish, usage = encode_row(
        message
    ).values
    row = (1, "message", role, content, extra, tool_calls, call_id, name, reasoning, model, finish)
    read = decode_row((*row, usage, 5.0, None, 2, 3))
    return {key: value for key, value in read.items() if key not in STORE_KEYS}


@given(messages)
def test_every_message_is_read_as_it_was_accepted(message: Message) -> None:
    assert _column_form(message) == clean_value(message)
    assert encode_row(message).message == clean_value(message)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionDB]:
    """One store for all examples, each in a session of its own."""
    store = SessionDB(tmp_path_factory.mktemp("rows") / "state.db")
    yield store
    store.close()


@given(st.lists(messages, max_size=4))
def test_a_store_gives_back_every_batch(shared: SessionDB, batch: list[Message]) -> None:
    session_id = new_turn_id()
    shared.create_session(session_id, "cli")
    stored = shared.append(session_id, batch)
    assert shared.view(session_id).messages == stored
    assert shared.accepted_rows(session_id, 1, 99) == stored
    visible = [{k: v for k, v in row.items() if k not in STORE_KEYS} for row in stored]
    assert visible == clean_value(batch)


@pytest.mark.parametrize("value", ["", [], {}, None, 0, False, "x", ["x"], [None], {"a": None}])
@pytest.mark.parametrize(
    "key",
    ["content", "tool_call_id", "name", "_reasoning", "_model", "_usage", "other"],
)
def test_every_kind_of_value_under_every_key_survives(key: str, value: Any) -> None:
    message = {"role": "user", key: value}
    read = _column_form(message)
    assert read == message
    assert type(read[key]) is type(value)


def test_no_content_and_null_content_are_told_apart() -> None:
    assert _column_form({"role": "assistant"}) == {"role": "assistant"}
    assert _column_form({"role": "assistant", "content": None}) == {
        "role": "assistant",
        "content": None,
    }


@pytest.mark.parametrize(
    "value",
    [math.nan, [math.inf], 2**64, {"a": {1, 2}}, datetime.datetime(2026, 1, 1), b"bytes"],
    ids=["nan", "infinity", "large-integer", "set", "datetime", "bytes"],
)
def test_what_json_cannot_hold_is_refused_with_its_key(value: Any) -> None:
    with pytest.raises(UsageError, match="'other'"):
        encode_row({"role": "user", "content": "x", "other": value})


@pytest.mark.parametrize("calls", [None, [], [{"id": "c"}], [{"function": {"name": "f"}}]])
def test_tool_calls_survive_as_given(calls: Any) -> None:
    message = {"role": "assistant", "tool_calls": calls}
    assert _column_form(message) == message


@pytest.mark.parametrize("calls", ["x", {"a": 1}, ["x"], [{"function": "f"}], 7])
def test_tool_calls_of_another_shape_are_refused(calls: Any) -> None:
    with pytest.raises(UsageError, match="tool_calls"):
        encode_row({"role": "assistant", "tool_calls": calls})


@pytest.mark.parametrize("role", [None, "", 3])
def test_a_message_needs_a_role(role: Any) -> None:
    with pytest.raises(UsageError, match=f"role {role!r}"):
        encode_row({"role": role, "content": "x"})
