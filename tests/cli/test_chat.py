"""`hermes chat` without a terminal: lines in, answers out, and nothing lost on the way."""

from __future__ import annotations

import json

import pytest

from agent.base.paths import default_database
from agent.sessions.records import PassStatus
from agent.testing.builders import call
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from hermes_state import SessionDB
from tests.cli.conftest import Hermes, Ran


def types(out: str) -> list[str]:
    return [json.loads(line)["type"] for line in out.splitlines()]


def test_each_line_gets_one_answer(hermes: Hermes, endpoint: StubModelServer) -> None:
    endpoint.script([Reply(text="first\nanswer"), Reply(text="second")])
    assert hermes("chat", lines="one\n\ntwo\n") == Ran(0, "first\nanswer\nsecond\n", "")


def test_hermes_alone_is_hermes_chat(hermes: Hermes, endpoint: StubModelServer) -> None:
    assert hermes(lines="one\n/quit\nnever read\n") == Ran(0, "ok\n", "")
    assert len(endpoint.requests) == 1


def test_a_query_is_one_turn(hermes: Hermes, endpoint: StubModelServer) -> None:
    assert hermes("chat", "-q", "hi", lines="not read\n") == Ran(0, "ok\n", "")


def test_a_failed_line_is_told_and_the_next_one_is_answered(
    hermes: Hermes, endpoint: StubModelServer
) -> None:
    endpoint.script([Reply(status=401, error="bad key")])
    ran = hermes("chat", lines="one\n/nonsense\ntwo\n")
    assert (ran.code, ran.out) == (2, "ok\n")
    first, second = ran.err.splitlines()
    assert first.startswith("hermes: ")
    assert "401" in first
    assert second == "hermes: unknown command '/nonsense'; /help lists all of them"


def test_events_are_json_lines_and_the_last_is_turn_finished(
    hermes: Hermes, endpoint: StubModelServer
) -> None:
    ran = hermes("chat", "-q", "hi", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert types(ran.out) == ["turn_started", "text_delta", "usage", "turn_finished"]
    assert json.loads(ran.out.splitlines()[-1])["final_text"] == "ok"


def test_events_end_with_turn_finished_also_when_the_turn_failed(
    hermes: Hermes, endpoint: StubModelServer
) -> None:
    endpoint.script([Reply(status=402, error="no money")])
    ran = hermes("chat", "-q", "hi", "--json")
    assert ran.code == 3
    assert types(ran.out) == ["turn_started", "error", "turn_finished"]
    assert json.loads(ran.out.splitlines()[1])["class"] == "quota"
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("words", [["--session", "Nobody"], ["--api-mode", "morse"], ["-q", " "]])
def test_events_end_with_turn_finished_also_when_no_turn_began(
    words: list[str], hermes: Hermes, endpoint: StubModelServer
) -> None:
    ran = hermes("chat", "--json", *words)
    assert (ran.code, types(ran.out)) == (2, ["error", "turn_finished"])


def test_an_unknown_command_among_events_is_told_as_events(
    hermes: Hermes, endpoint: StubModelServer
) -> None:
    ran = hermes("chat", "--json", lines="/help\n/nonsense\n")
    assert (ran.code, types(ran.out)) == (2, ["error", "turn_finished"])
    assert "/compress" in ran.err


def test_an_endpoint_without_a_model_lists_its_models(
    hermes: Hermes, stub: StubModelServer
) -> None:
    ran = hermes("chat", "-q", "hi", "--base-url", stub.base_url)
    assert ran == Ran(
        2,
        "",
        f"hermes: no model is set; {stub.base_url} has stub-model; "
        "run: hermes config set model.name stub-model\n",
    )


def test_an_endpoint_that_cannot_be_asked_says_so(hermes: Hermes) -> None:
    ran = hermes("chat", "-q", "hi", "--base-url", "http://127.0.0.1:9/v1")
    assert ran.code == 2
    assert ran.err.startswith("hermes: no model is set, and the endpoint cannot be asked")
    assert ran.err.endswith("run: hermes config set model.name NAME\n")


def test_a_session_is_gone_on_with_by_title_and_by_continue(
    hermes: Hermes, endpoint: StubModelServer
) -> None:
    hermes("chat", lines="first message\n/title Garden plan\n")
    hermes("chat", lines="other talk\n")
    hermes("chat", "--session", "Garden plan", "-q", "by title")
    hermes("chat", "--continue", "-q", "by continue")
    with_history = [
        [message["content"] for message in request.body["messages"] if message["role"] == "user"]
        for request in endpoint.requests
    ]
    assert with_history == [
        ["first message"],
        ["other talk"],
        ["first message", "by title"],
        ["first message", "by title", "by continue"],
    ]


def test_there_must_be_a_session_to_continue(hermes: Hermes, endpoint: StubModelServer) -> None:
    assert hermes("chat", "--continue") == Ran(
        2, "", "hermes: --continue finds no session yet; start one with: hermes chat\n"
    )


def test_tools_are_offered_unless_they_are_switched_off(
    hermes: Hermes, endpoint: StubModelServer
) -> None:
    hermes("chat", "-q", "hi")
    hermes("chat", "-q", "hi", "--no-tools")
    assert [bool(request.body.get("tools")) for request in endpoint.requests] == [True, False]


@pytest.mark.parametrize(("words", "end"), [([], "← shell failed, "), (["--yolo"], "← shell ")])
def test_a_tool_that_executes_runs_unasked_only_with_yolo(
    words: list[str], end: str, hermes: Hermes, endpoint: StubModelServer
) -> None:
    endpoint.script([Reply(text=None, tool_calls=[call("shell", {"command": "echo hi"})])])
    ran = hermes("chat", "-q", "run it", *words)
    started, ended = ran.err.splitlines()
    assert (ran.code, ran.out, started) == (0, "ok\n", "→ shell: echo hi")
    assert ended.startswith(end)
    assert ("failed" in ended) is (not words)


def test_commands_work_on_lines(hermes: Hermes, endpoint: StubModelServer) -> None:
    lines = [
        "where is the red box",
        "/title Boxes",
        "/title",
        "/context",
        "/compactions",
        "/recall box",
        "/recall 1-2",
        "/recall zebra",
        "/stop",
        "/model",
        "/model other",
        "/usage",
        "/tools",
        "/new",
        "/resume Boxes",
        "/sessions",
        "/help",
    ]
    ran = hermes("chat", lines="\n".join(lines))
    assert ran.code == 2
    assert ran.err == "hermes: /title needs the new title, such as /title Garden plan\n"
    found = iter(ran.out.splitlines())
    for expected in (
        "ok",
        "title set: Boxes",
        "total ",
        "no compactions yet",
        "where is the red box",
        "#2 assistant",
        "nothing found for 'zebra'",
        "nothing is running",
        f"model: stub-model at {endpoint.base_url}",
        "this endpoint has: stub-model",
        f"model set: other at {endpoint.base_url}",
        "model calls ",
        "recall ",
        "approval: ask",
        "new session ",
        "session ",
        "/quit ",
    ):
        assert any(line.startswith(expected) for line in found), expected


def gardener(request: RecordedRequest) -> Reply:
    """Answer turns at length, and summarise in a few plain words."""
    if request.body.get("tools"):
        return Reply(
            text="Planted. " + "The bed is watered, the soil is dark, the rows are straight. " * 5
        )
    return Reply(
        text="## Goal\nA garden with numbered beds.\n## Done\n- the beds so far are planted\n"
    )


def test_twenty_long_messages_pass_the_window_twice_and_nothing_is_lost(
    hermes: Hermes, endpoint: StubModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_MODEL__CONTEXT_LENGTH", "6000")
    endpoint.script(gardener, window_tokens=6000)
    sent = [
        f"Please plant bed {number} from box B-{number * 37}. "
        + "Mind the roots, they are long and thin and break in the frost. " * 6
        for number in range(20)
    ]
    ran = hermes("chat", lines="\n".join(sent))
    assert (ran.code, len(ran.out.splitlines())) == (0, 20)
    assert ran.err.count("compacted (") >= 2
    [session] = json.loads(hermes("sessions", "list", "--json").out)
    shown = json.loads(hermes("sessions", "show", session["id"], "--json").out)
    accepted = [row for row in shown["messages"] if row["made_by"] is None]
    assert [row["content"] for row in accepted if row["role"] == "user"] == sent
    assert len(accepted) == 40
    for number in (0, 7, 19):
        hits = json.loads(hermes("sessions", "search", f"B-{number * 37}", "--json").out)
        assert sent[number] in [hit["message"]["content"] for hit in hits]
    passes = json.loads(hermes("compactions", "list", session["id"], "--json").out)
    committed = [record for record in passes if record["status"] == PassStatus.COMMITTED]
    assert len(committed) >= 2
    for record in committed:
        assert record["tokens_after"] < record["tokens_before"]
        assert record["messages_after"] < record["messages_before"]
    store = SessionDB(db_path=default_database())
    assert list(store.check().problems) == []
    store.close()
