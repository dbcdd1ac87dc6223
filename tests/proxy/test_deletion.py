"""A conversation that somebody deletes while its client goes on."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor

from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from tests.proxy.conftest import MakeCaller
from tests.proxy.serving import Caller, serving
from tests.proxy.talk import is_summary
from tests.proxy.test_pressure import WAITS, full, refusals


def test_the_client_goes_on_in_a_new_conversation_which_gets_the_same_number(
    caller: MakeCaller, store: SessionDB, stub: StubModelServer
) -> None:
    stub.script(lambda request: Reply(text=GOOD_SUMMARY if is_summary(request) else "noted"))
    one = caller()
    full(one)
    one.go_on()
    [before] = store.sessions()
    assert before.pass_count
    store.delete_session(before.id)
    one.say("and then?")
    one.say("and after that?")
    [after] = store.sessions()
    assert (after.conversation_id, after.id == before.id) == (before.conversation_id, False)
    stored = store.accepted_rows(after.id, 1, 200)
    assert [row["content"] for row in stored] == [message["content"] for message in one.messages]
    assert refusals(stub) == []


def test_what_is_deleted_while_a_request_waits_for_its_pass_begins_anew(
    store: SessionDB, stub: StubModelServer
) -> None:
    release = threading.Event()
    held = Reply(text=GOOD_SUMMARY, before_first_byte_s=math.inf, release=release)
    stub.script(lambda request: held if is_summary(request) else Reply(text="noted"))
    with serving(store, stub.base_url, WAITS) as url, Caller(url) as one:
        full(one)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(one.go_on)
            stub.wait_for_requests(1)
            [before] = store.sessions()
            store.delete_session(before.id)
            release.set()
            assert answer.result(15)["content"] == "noted"
    [after] = store.sessions()
    assert after.id != before.id
    stored = store.accepted_rows(after.id, 1, 200)
    assert [row["content"] for row in stored] == [message["content"] for message in one.messages]
    assert refusals(stub) == []
