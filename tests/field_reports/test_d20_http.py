"""D20 over HTTP: no key that a client shows reaches a summariser, and its own reaches no file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from agent.base.messages import text_of
from agent.sessions.records import PassKind, PassStatus
from agent.testing.builders import user
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from tests.field_reports.harness import SUMMARISER, SUMMARY, body_text, small_talk
from tests.field_reports.surfaces import CALLERS_KEY, SURFACES, session_of, talking
from tests.field_reports.test_d20_secret import ALL_OF_THEM, EVERY_PLACE, PARTS, SECRETS, leaks

WINDOW = 8_192
BULK = small_talk(12, tokens=700)


@EVERY_PLACE
@pytest.mark.parametrize("surface", SURFACES)
def test_d20_what_a_client_shows_is_kept_whole_and_summarised_without_it(
    stub: StubModelServer, tmp_path: Path, surface: str, place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stub.script([], model=SUMMARISER, then=Reply(text=f"{SUMMARY}\nKeys: {ALL_OF_THEM}"))
    shown = place(ALL_OF_THEM)
    with talking(surface, tmp_path, stub, window_tokens=WINDOW) as talk:
        talk.send(*shown, *BULK, user("go on"))
        rows = talk.store.history(session_of(talk))
        passes = talk.store.passes(session_of(talk))
        stored = talk.store.accepted_rows(session_of(talk), 1, len(shown))
    assert (PassStatus.COMMITTED, PassKind.SUMMARY) in [(p.status, p.kind) for p in passes]
    asked = "\n".join(map(body_text, stub.requests_for(SUMMARISER)))
    made = "\n".join(text_of(row.message.get("content")) for row in rows if row.made_by)
    for kind in SECRETS:
        assert leaks(kind, asked + made + caplog.text) == []
        assert f"[REDACTED:{kind}]" in asked
        assert leaks(kind, str(stored)) == PARTS[kind]


@pytest.mark.parametrize("surface", SURFACES)
def test_d20_a_key_that_a_failing_summariser_echoes_is_in_no_file(
    stub: StubModelServer, tmp_path: Path, surface: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = CALLERS_KEY if surface == "proxy" else "stub-key"
    stub.script([], model=SUMMARISER, then=Reply(status=401, error=f"wrong key: {key}"))
    with talking(surface, tmp_path, stub, window_tokens=WINDOW) as talk:
        talk.send(*BULK, user("go on"))
        passes = talk.store.passes(session_of(talk))
    assert (PassStatus.COMMITTED, PassKind.MECHANICAL) in [(p.status, p.kind) for p in passes]
    assert {request.headers["authorization"] for request in stub.requests} == {f"Bearer {key}"}
    assert key not in f"{passes}{caplog.text}"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if key.encode() in path.read_bytes()] == []
