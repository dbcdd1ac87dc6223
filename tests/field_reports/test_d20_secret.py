"""D20: a key seen anywhere reaches no summariser and no summary; the archive keeps it."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.base.errors import RequestRefused, UsageError
from agent.base.messages import Message, text_of
from agent.base.settings import TelemetrySettings
from agent.sessions.blobs import HEAD_CHARS, TAIL_CHARS
from agent.sessions.records import NewRow, PassKind, PassStatus
from agent.testing.builders import assistant, call, result, user
from agent.testing.stub_reply import Reply
from agent.tools.protocol import Access, Tool
from agent.tui.failures import describe, log_file
from tests.field_reports.harness import (
    SUMMARISER,
    SUMMARY,
    Bench,
    body_text,
    settings_for,
    small_talk,
    words,
)
from tests.sessions.steps import run_pass

WINDOW, OVER = 8_000, 7_500
_sessions = itertools.count(1)

PEM = "\n".join(
    [
        "-----BEGIN RSA PRIVATE KEY-----",
        "MIIEpAIBAAKCAQEA7bq3fA1kz0Q9nV5wXyR2LrT8sGhJmP4uE6oCiDvB1tKxZyW0",
        "q8N3fLs5aVb7cXd9eYf1gZh2iAj4kBl6mCn8oDp0qEr2sFt4uGv6wHx8yIz0AJb1",
        "-----END RSA PRIVATE KEY-----",
    ]
)
JWT = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"
    ".eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkEifQ"
    ".SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
)
SECRETS = {
    "anthropic_key": "sk-ant-api03-Zk3vQ9xT7mN2pL5wR8yB1cF4",
    "github_token": "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8",
    "aws_key_id": "AKIAIOSFODNN7EXAMPLE",
    "private_key": PEM,
    "url_credentials": "postgres://admin:s3cr3tP4ss@db.internal:5432/app",
    "jwt": f"Authorization: Bearer {JWT}",
}
PARTS = {
    "anthropic_key": ["Zk3vQ9xT7mN2pL5wR8yB1cF4"],
    "github_token": ["A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"],
    "aws_key_id": ["AKIAIOSFODNN7EXAMPLE"],
    "private_key": PEM.splitlines()[1:3],
    "url_credentials": ["s3cr3tP4ss"],
    "jwt": JWT.split("."),
}
"""What must not be found of each secret."""
ALL_OF_THEM = "\nand ".join(SECRETS.values())
EVERY_SECRET = pytest.mark.parametrize("kind", SECRETS)


def in_result(secret: str) -> list[Message]:
    made = call("shell", {"command": "cat .env"}, call_id="c1")
    return [user("look"), assistant(None, made), result(made, f"found {secret} in it")]


def in_arguments(secret: str) -> list[Message]:
    made = call("write_file", {"path": ".env", "text": f"KEY {secret} end"}, call_id="c1")
    return [user("write"), assistant(None, made), result(made, "written")]


def in_user_text(secret: str) -> list[Message]:
    return [user(f"please use {secret} for this " + words(900, "chatter")), assistant("I will.")]


def in_answer(secret: str) -> list[Message]:
    return [user("which one?"), assistant(f"I used {secret} for it.")]


def in_parts(secret: str) -> list[Message]:
    return [user([{"type": "text", "text": f"it is {secret} " + words(900)}]), assistant("Right.")]


def in_error(secret: str) -> list[Message]:
    made = call("deploy", call_id="c1")
    failed = f"deploy failed: PermissionError: rejected {secret} by the server"
    return [user("deploy"), assistant(None, made), result(made, failed)]


def in_a_long_result(secret: str) -> list[Message]:
    made = call("shell", call_id="c1")
    log = words(20_000, "log")
    return [user("look"), assistant(None, made), result(made, f"{secret}\n{log}\n{secret}")]


PLACES = {
    "tool result": in_result,
    "tool arguments": in_arguments,
    "user text": in_user_text,
    "answer": in_answer,
    "text part": in_parts,
    "error text": in_error,
    "long tool result": in_a_long_result,
}
EVERY_PLACE = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)


def leaks(kind: str, text: str) -> list[str]:
    """Return the pieces of a secret that stand in a text, whatever breaks its lines."""
    flat = "".join(text.replace("\\n", "\n").split())
    return [part for part in PARTS[kind] if part in flat]


def asked(bench: Bench) -> str:
    """Return everything that was sent to the summary model."""
    return "\n".join(body_text(request) for request in bench.summary_requests)


def made(bench: Bench) -> str:
    """Return the text of every row that a pass made."""
    rows = bench.store.history(bench.session_id)
    return "\n".join(text_of(row.message.get("content")) for row in rows if row.made_by)


@pytest.fixture
def open_with(stub, open_bench):
    """A bench whose old rows are these; its tail and kept requests are small."""

    def open_one(messages, *, over=False, session_id="s"):
        stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
        setup = settings_for(stub.base_url, window_tokens=WINDOW)
        bench = open_bench(setup, session_id=session_id)
        bench.fill([*messages, *small_talk(4, tokens=150)])
        if over:
            bench.fill_to(OVER)
        bench.compressor.tail_token_budget = 300
        return bench

    return open_one


@EVERY_PLACE
def test_d20_no_summary_call_and_no_summary_holds_one_and_the_archive_does(open_with, place):
    messages = place(ALL_OF_THEM)
    bench = open_with(messages)
    record = bench.agent.compress()
    assert (record.status, record.kind) == (PassStatus.COMMITTED, PassKind.SUMMARY)
    assert len(bench.summary_requests) == 1
    for kind in SECRETS:
        assert leaks(kind, asked(bench)) == []
        assert f"[REDACTED:{kind}]" in asked(bench)
        assert leaks(kind, made(bench)) == []
        assert leaks(kind, str(bench.rows)) == PARTS[kind]
    assert bench.rows[: len(messages)] == messages


@pytest.mark.parametrize("shift", [0, 3, 9, 17, 30])
@pytest.mark.parametrize("kind", ["anthropic_key", "github_token", "aws_key_id", "url_credentials"])
def test_d20_an_excerpt_shows_no_half_of_one(open_with, kind, shift):
    """Half a key is not known for one, so the cut of a long result must not go through it."""
    secret = SECRETS[kind]
    head = words(2_000, "head")[: HEAD_CHARS - shift - 1]
    tail = words(2_000, "tail")[: TAIL_CHARS - len(secret) + shift - 1]
    made_call = call("shell", call_id="c1")
    log = f"{head} {secret} {words(20_000, 'log')} {secret} {tail}"
    bench = open_with([user("look"), assistant(None, made_call), result(made_call, log)])
    bench.agent.compress()
    assert len(bench.summary_requests) == 1
    flat = asked(bench)
    for part in PARTS[kind]:
        assert part[:9] not in flat
        assert part[-9:] not in flat


@EVERY_PLACE
def test_d20_a_digest_without_a_model_holds_none_either(stub, open_with, place):
    bench = open_with(place(ALL_OF_THEM), over=True)
    stub.script([], model=SUMMARISER, then=Reply(status=401))
    record = bench.agent.compress()
    assert (record.status, record.kind) == (PassStatus.COMMITTED, PassKind.MECHANICAL)
    assert [kind for kind in SECRETS if leaks(kind, asked(bench) + made(bench))] == []
    assert "recall" in made(bench)


@EVERY_SECRET
def test_d20_the_focus_is_redacted(open_with, kind):
    bench = open_with(in_answer("nothing"))
    bench.agent.compress(focus=f"keep what {SECRETS[kind]} is for")
    assert leaks(kind, asked(bench)) == []
    assert f"[REDACTED:{kind}]" in asked(bench)
    assert "keep what" in asked(bench)


@EVERY_SECRET
def test_d20_an_earlier_summary_is_redacted_before_it_is_sent_on(open_with, kind):
    bench = open_with(in_answer("nothing"))
    text = f"## State\nThe key is {SECRETS[kind]} and it works. " + words(100)
    rows = bench.view[:2]
    run_pass(
        bench.store,
        "s",
        cover=tuple(row["_row_id"] for row in rows),
        new_row=summary_row(text),
    )
    bench.agent.compress()
    assert len(bench.summary_requests) == 1
    assert "and it works" in asked(bench)
    assert leaks(kind, asked(bench)) == []
    newest = [row for row in bench.view if row.get("_kind") == "summary"]
    assert [leaks(kind, row["content"]) for row in newest] == [[]]


def summary_row(text: str) -> NewRow:
    return NewRow({"role": "user", "content": text}, PassKind.SUMMARY)


@EVERY_SECRET
def test_d20_a_summariser_that_writes_one_is_not_believed(stub, open_with, kind):
    bench = open_with(in_answer("nothing"))
    stub.script([Reply(text=f"{SUMMARY}\nKey: {SECRETS[kind]} (works)")], model=SUMMARISER)
    assert bench.agent.compress().status is PassStatus.COMMITTED
    assert leaks(kind, made(bench)) == []
    assert f"[REDACTED:{kind}]" in made(bench)


@EVERY_SECRET
def test_d20_an_installed_engine_that_writes_one_is_not_believed(open_with, kind):
    bench = open_with(in_answer("nothing"))

    def compress(rows: list[Message], **_options: Any) -> list[Message]:
        return [user(f"notes: {SECRETS[kind]} works"), *rows[-2:]]

    bench.compressor.compress = compress
    assert bench.agent.compress().status is PassStatus.COMMITTED
    assert leaks(kind, made(bench)) == []


@EVERY_SECRET
def test_d20_what_a_failing_provider_echoes_is_told_without_it(stub, open_with, kind, caplog):
    caplog.set_level(logging.DEBUG)
    bench = open_with(in_answer("nothing"))
    stub.script([Reply(status=401, error=f"rejected {SECRETS[kind]}!")], model=SUMMARISER)
    record = bench.agent.compress()
    assert record.status is PassStatus.FAILED
    assert "rejected" in record.detail
    told = "\n".join(map(str, bench.events))
    kept = f"{record}\n{bench.cooldown}\n{bench.store.health('s')}"
    assert leaks(kind, told + kept + caplog.text) == []


@EVERY_SECRET
def test_d20_an_unexpected_failure_is_logged_without_it(kind):
    try:
        raise ValueError(f"cannot use {SECRETS[kind]} here")
    except ValueError as error:
        failure = describe(error)
    assert leaks(kind, failure.text + log_file().read_text()) == []


@given(
    kinds=st.lists(st.sampled_from([*SECRETS]), min_size=1, max_size=4),
    places=st.lists(st.sampled_from([*PLACES]), min_size=1, max_size=3),
    before=st.sampled_from(["", "KEY=", '"', "(", "\n", "key: ", "x" * 7_000 + " "]),
    after=st.sampled_from(["", ".", '"', ")", "\n", ",", " " + "y" * 9_000]),
)
@settings(
    max_examples=settings().max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_d20_whatever_stands_around_it_and_however_it_is_split_into_parts(
    stub, open_with, kinds, places, before, after
):
    messages: list[Message] = []
    for number, name in enumerate(places):
        text = " and ".join(f"{before}{SECRETS[kind]}{after}" for kind in kinds)
        rows = PLACES[name](text)
        for row in rows:
            for made_call in row.get("tool_calls") or ():
                made_call["id"] = f"p{number}"
            if row["role"] == "tool":
                row["tool_call_id"] = f"p{number}"
        messages += rows
    seen = len(stub.requests)
    bench = open_with(messages, session_id=f"s{next(_sessions)}")
    bench.agent.compress()
    shown = "\n".join(body_text(request) for request in stub.requests[seen:])
    for kind in kinds:
        assert leaks(kind, shown) == []
        assert leaks(kind, made(bench)) == []
    assert bench.rows[: len(messages)] == messages


@EVERY_SECRET
def test_d20_trace_and_log_tell_of_turns_and_passes_without_it(
    stub, store, kind, collector, caplog
):
    caplog.set_level(logging.DEBUG)
    secret = SECRETS[kind]
    telemetry = TelemetrySettings(otel=True, otel_endpoint=collector.endpoint)
    setup = settings_for(stub.base_url, window_tokens=WINDOW)
    bench = Bench(stub, store, replace(setup, telemetry=telemetry), tools=[echoing(secret)])
    bench.fill([*in_result(secret), *small_talk(4, tokens=150)])
    bench.compressor.tail_token_budget = 300
    stub.script(
        [
            Reply(text=None, tool_calls=[call("echo", {"of": secret})]),
            Reply(text=f"it said {secret}"),
            Reply(status=400, error=f"rejected {secret}"),
        ]
    )
    stub.script([Reply(text=SUMMARY), Reply(status=401, error=secret)], model=SUMMARISER)
    bench.agent.chat(f"use {secret}")
    with pytest.raises(RequestRefused):
        bench.agent.chat(f"use {secret} again")
    statuses = [bench.agent.compress(focus=secret).status for _ in range(2)]
    bench.agent.close()
    assert statuses == [PassStatus.COMMITTED, PassStatus.FAILED]
    names = {span.name for span in collector.spans()}
    assert len(names) >= 3
    exported = "\n".join(map(str, [*collector.traces, *collector.metrics]))
    assert leaks(kind, exported) == []
    assert "hermes.compaction" in {record.name for record in caplog.records}
    assert leaks(kind, caplog.text) == []


def echoing(secret: str) -> Tool:
    """Return a tool that fails with a secret in its words."""

    def run(_arguments: Any, _context: Any) -> str:
        raise ValueError(f"cannot take {secret}")

    return Tool(
        name="echo",
        description="Echoes.",
        parameters={"type": "object", "properties": {"of": {"type": "string"}}},
        access=Access.READ,
        run=run,
        describe=lambda _arguments: "echo",
    )


# -- pins, extracts and anchors -------------------------------------------------------------------
@EVERY_SECRET
def test_d20_a_pin_that_holds_one_is_refused(open_with, kind):
    bench = open_with(in_answer("nothing"))
    with pytest.raises(UsageError) as refused:
        bench.agent.pin(f"Always use {SECRETS[kind]} for deployments.")
    assert leaks(kind, str(refused.value)) == []
    assert bench.agent.pins() == []


@EVERY_PLACE
def test_d20_it_is_no_extract_and_no_pin(open_with, place):
    rules = [
        user(f"From now on always use {secret} for deployments, never anything else.")
        for secret in SECRETS.values()
    ]
    bench = open_with([*rules, assistant("I will."), *place(f"the key is {ALL_OF_THEM}")])
    bench.store.extract_pending()
    kept = f"{bench.store.extracts(bench.session_id)}\n{bench.agent.pins()}"
    assert [kind for kind in SECRETS if leaks(kind, kept)] == []


@EVERY_SECRET
def test_d20_anchors_hold_what_stood_beside_it_but_not_it(stub, open_with, kind):
    """The summary loses everything; what is put back word for word holds no key."""
    secret = SECRETS[kind]
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    bench = open_with(
        [
            user("deploy the newest build, please"),
            assistant(f"Deployed it with {secret} to build-host-17.internal:5433."),
            *in_result(f"/srv/app/config_17.yaml {secret} 10.20.30.40"),
        ]
    )
    assert bench.agent.compress().status is PassStatus.COMMITTED
    assert "build-host-17.internal:5433" in made(bench)
    assert leaks(kind, made(bench)) == []
    bench.agent.chat("go on")
    framed = body_text(bench.main_requests[-1])
    assert "build-host-17.internal:5433" in framed
