"""`/api/sessions`: life of a session, messages, passes, pins, search, events."""

from __future__ import annotations

from agent.testing.builders import assistant, user
from agent.testing.stub_reply import Reply
from agent.testing.summaries import GOOD_SUMMARY
from tests.server.served import Served, error_of, events_in, read_events

SESSIONS = "/api/sessions"
EVENTS = {"Accept": "text/event-stream"}


def begin(served: Served, title: str | None = None) -> str:
    """Begin a session and return its path."""
    answer = served.post(SESSIONS, {"title": title})
    assert answer.status_code == 201
    return answer.headers["location"]


def seed(served: Served, turns: int) -> str:
    """Return the path of a session with a history of so many turns."""
    history = [
        message
        for number in range(turns)
        for message in (user(f"question {number} " + "why " * 40), assistant("because " * 60))
    ]
    return f"{SESSIONS}/{served.chat(*history, user('and now?')).headers['x-hermes-session']}"


def test_a_session_is_begun_named_found_and_deleted(served: Served) -> None:
    path = begin(served)
    session = path.rpartition("/")[2]
    shape = served.get(path).json()
    assert {key: shape[key] for key in ("id", "title", "source", "message_count", "busy")} == {
        "id": session,
        "title": None,
        "source": "server",
        "message_count": 0,
        "busy": "",
    }
    changed = served.client.patch(path, json={"title": "Garden plan"}).json()
    assert changed == {**shape, "title": "Garden plan"}
    assert served.get(f"{SESSIONS}/Garden%20plan").json() == changed
    assert served.get(f"{SESSIONS}/{session[:-1]}").json()["id"] == session
    assert served.get(SESSIONS).json() == {"sessions": [changed]}
    assert served.client.delete(path).status_code == 204
    assert error_of(served.get(path)) == (404, "invalid_request_error", "session_not_found")
    assert served.get(SESSIONS).json() == {"sessions": []}


def test_a_title_that_is_taken_or_blank_is_refused(served: Served) -> None:
    begin(served, "Garden")
    taken = served.post(SESSIONS, {"title": "Garden"})
    assert error_of(taken) == (400, "invalid_request_error", "invalid_value")
    for title in ("", "  ", "x" * 201, 5):
        assert served.post(SESSIONS, {"title": title}).status_code == 400
    assert len(served.get(SESSIONS).json()["sessions"]) == 1


def test_a_message_is_answered_whole(served: Served) -> None:
    counted = {"prompt_tokens": 9, "completion_tokens": 3}
    served.stub.script([Reply(text="Hi.", usage=counted)])
    path = begin(served)
    answer = served.post(f"{path}/messages", {"content": "hello"}).json()
    [row] = answer.pop("messages")
    assert isinstance(row.pop("at"), float)
    assert row == {"seq": 2, "role": "assistant", "content": "Hi."}
    usage = answer.pop("usage")
    assert (usage["calls"], usage["prompt"], usage["completion"]) == (1, 9, 3)
    assert answer == {
        "session_id": path.rpartition("/")[2],
        "final_text": "Hi.",
        "stop_reason": "stop",
        "passes": [],
    }


def test_a_message_is_answered_by_the_events_of_its_turn(served: Served) -> None:
    served.stub.script([Reply(chunks=("Hi ", "there."))])
    path = begin(served)
    body = {"content": "hello"}
    with served.client.stream("POST", f"{path}/messages", json=body, headers=EVENTS) as answer:
        events = list(read_events(answer))
    kinds = [event["type"] for event in events]
    assert kinds == ["turn_started", "text_delta", "text_delta", "usage", "turn_finished"]
    assert {event["session_id"] for event in events} == {path.rpartition("/")[2]}
    assert (events[-1]["final_text"], events[-1]["stop_reason"]) == ("Hi there.", "stop")


def test_nothing_to_answer_is_refused_and_what_waits_is_answered(served: Served) -> None:
    path = begin(served)
    nothing = served.post(f"{path}/messages")
    assert error_of(nothing) == (400, "invalid_request_error", "nothing_to_do")
    served.stub.script([Reply(status=401, error="no")])
    assert served.post(f"{path}/messages", {"content": "hello"}).status_code == 502
    assert served.post(f"{path}/messages").json()["final_text"] == "ok"


def test_rows_are_read_from_a_place_on(served: Served) -> None:
    path = begin(served)
    served.post(f"{path}/messages", {"content": "one"})
    served.post(f"{path}/messages", {"content": "two"})

    def seqs(query: str) -> list[int]:
        return [row["seq"] for row in served.get(f"{path}/messages?{query}").json()["messages"]]

    assert (seqs(""), seqs("after=2"), seqs("view=all&after=3")) == ([1, 2, 3, 4], [3, 4], [4])
    assert served.get(f"{path}/messages?view=some").status_code == 400


def test_a_pass_by_hand_is_committed_shown_and_undone(hermes: Served) -> None:
    hermes.window_tokens = 8_192
    served = hermes.start()
    try:
        path = seed(served, 14)
        before = served.get(f"{path}/messages").json()
        served.stub.script([], then=Reply(text=GOOD_SUMMARY))
        record = served.post(f"{path}/compact", {"focus": "reasons"}).json()
        assert (record["status"], record["trigger"]) == ("committed", "manual")
        assert served.get(f"{path}/compactions").json() == {"passes": [record]}
        one = f"{path}/compactions/{record['id']}"
        changes = served.get(one).json()
        assert changes["pass"] == record
        assert changes["left"]
        assert len(served.get(f"{path}/messages").json()["messages"]) < len(before["messages"])
        undone = served.post(f"{one}/undo").json()
        assert [row["kind"] for row in undone["passes"]] == ["undo"]
        assert served.get(f"{path}/messages").json() == before
        again = served.post(f"{one}/undo")
        assert error_of(again) == (409, "invalid_request_error", "undo_refused")
        unknown = served.get(f"{path}/compactions/nothing")
        assert error_of(unknown) == (404, "invalid_request_error", "pass_not_found")
    finally:
        served.stop()


def test_a_preview_waits_for_the_request_that_commits_it(hermes: Served) -> None:
    hermes.window_tokens = 8_192
    served = hermes.start()
    try:
        path = seed(served, 14)
        served.stub.script([], then=Reply(text=GOOD_SUMMARY))
        prepared = served.post(f"{path}/compact", {"preview": True}).json()
        calls = len(served.stub.requests)
        committed = served.post(f"{path}/compact").json()
        assert (prepared["status"], committed["status"]) == ("prepared", "committed")
        assert prepared["id"] == committed["id"]
        assert len(served.stub.requests) == calls
    finally:
        served.stop()


def test_pins_are_set_listed_and_taken_off(served: Served) -> None:
    path = begin(served)
    made = served.post(f"{path}/pins", {"text": "Never touch main."})
    pin = made.json()
    assert (made.status_code, pin["text"]) == (201, "Never touch main.")
    assert served.get(f"{path}/pins").json() == {"pins": [pin]}
    assert served.client.delete(f"{path}/pins?id={pin['id']}").json() == pin
    assert served.get(f"{path}/pins").json() == {"pins": []}
    assert served.client.delete(f"{path}/pins?id={pin['id']}").status_code == 400
    assert served.client.delete(f"{path}/pins").status_code == 400
    assert served.post(f"{path}/pins", {"text": " "}).status_code == 400


def test_rows_are_found_by_their_words(served: Served) -> None:
    path = begin(served)
    served.post(f"{path}/messages", {"content": "the frost came early"})
    [hit] = served.get(f"{path}/search", params={"q": "frost"}).json()["hits"]
    assert (hit["state"], hit["snippet"]) == ("live", "the frost came early")
    assert hit["message"]["seq"] == 1
    assert served.get(f"{path}/search", params={"q": "thaw"}).json() == {"hits": []}
    assert served.get(f"{path}/search").status_code == 400


def test_whoever_listens_hears_what_happens(served: Served) -> None:
    path = begin(served)
    with served.client.stream("GET", f"{path}/events") as listening:
        lines = listening.iter_lines()
        assert next(lines).startswith(":")
        served.post(f"{path}/messages", {"content": "hello"})
        kinds = []
        for event in events_in(lines):
            kinds.append(event["type"])
            if event["type"] == "turn_finished":
                break
    assert kinds == ["turn_started", "text_delta", "usage", "turn_finished"]


def test_a_session_that_is_not_there_is_not_found(served: Served) -> None:
    parts = ("", "/messages", "/compactions", "/pins", "/search?q=x", "/events", "/compactions/x")
    told = {error_of(served.get(f"{SESSIONS}/nobody{part}")) for part in parts}
    assert told == {(404, "invalid_request_error", "session_not_found")}


def test_metrics_count_turns_tokens_and_requests(served: Served) -> None:
    details = {"cached_tokens": 40, "cache_write_tokens": 50}
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": details}
    served.stub.script([Reply(usage=usage), Reply(status=401, error="no")])
    served.chat(user("hi"))
    served.chat(user("hi"))
    told = served.get("/metrics")
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = set(told.text.splitlines())
    assert {
        'hermes_turns_total{stop_reason="stop"} 1.0',
        'hermes_turns_total{stop_reason="error"} 1.0',
        "hermes_turn_seconds_count 2.0",
        "hermes_first_token_seconds_count 1.0",
        'hermes_tokens_total{kind="prompt"} 100.0',
        'hermes_tokens_total{kind="completion"} 7.0',
        'hermes_tokens_total{kind="cached"} 40.0',
        'hermes_tokens_total{kind="cache_write"} 50.0',
        "hermes_turns_running 0.0",
        "hermes_turns_waiting 0.0",
        'hermes_request_seconds_count{method="POST",path="/v1/chat/completions",status="200"} 1.0',
        'hermes_request_seconds_count{method="POST",path="/v1/chat/completions",status="502"} 1.0',
    } <= lines
