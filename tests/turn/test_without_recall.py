"""A request that does not offer `recall` does not speak of it either."""

from __future__ import annotations

from agent.base.excerpt import excerpt_chars
from agent.testing.builders import assistant, call, user
from agent.turn.framing import without_recall

STUB = '[look(page=2): 3 lines, 1,088 characters, put aside; recall(rows="3") shows it]'
DIGEST = 'What was done.\n\nTo read any of these rows in full: recall(rows="1-9").'


def test_what_we_wrote_in_place_of_text_names_no_call() -> None:
    cut = excerpt_chars("word " * 100, head=50, tail=50, seq=7)
    assert "recall(" in cut
    told = [
        without_recall(message)["content"]
        for message in (
            {"role": "tool", "tool_call_id": "c", "content": STUB, "_row_id": 3, "_tokens": 40},
            {"role": "tool", "tool_call_id": "c", "content": cut},
            {"role": "user", "content": DIGEST, "_kind": "frame"},
        )
    ]
    assert told == [
        "[look(page=2): 3 lines, 1,088 characters, put aside; row 3]",
        cut.replace('; read on with recall(rows="7", offset=50)', "; row 7"),
        "What was done.",
    ]


def test_what_others_said_stays_word_for_word() -> None:
    for message in (
        {**user(STUB), "_row_id": 1},
        assistant(STUB, call("recall", {"rows": "3"})),
        user("Do you recall(ever) this?"),
    ):
        assert without_recall(message)["content"] == message["content"]
