"""D19: however many agents compact one session, there is one chain and every message is in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent.base.messages import wire_message
from agent.base.settings import CompressionSettings
from agent.conversation_compression import compress_context
from agent.sessions.records import PassStatus
from agent.testing.oracle import Oracle
from agent.testing.stub_reply import Reply
from hermes_state import SessionDB
from tests.field_reports.crowd import WINDOW
from tests.field_reports.harness import SUMMARISER, SUMMARY, Bench, settings_for

ROOT = Path(__file__).parents[2]
PROCESSES = 8
ROUNDS = 20 if os.environ.get("HERMES_SOAK") == "1" else 4
FULL = 5_500
WAYS = {
    ("committed", ""),
    ("skipped", "lock_contended"),
    ("superseded", "attempt_superseded"),
    ("aborted", "no_op"),
}
"""How an attempt may end when others compact the same session."""
PLACES = ("in_place", "rotating")


@pytest.fixture
def filled(stub, tmp_path):
    """The path of a closed store whose session `s` is above its trigger."""
    stub.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
    path = tmp_path / "filled.db"
    store = SessionDB(db_path=path)
    Bench(stub, store, settings_for(stub.base_url, window_tokens=WINDOW)).fill_to(FULL)
    store.close()
    return path


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.field_reports.crowd", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class Rival:
    """Another process with an agent of its own, which does what it is told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def send(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        heard: dict[str, Any] = orjson.loads(self._process.stdout.readline())
        return heard

    def ask(self, order: str) -> dict[str, Any]:
        self.send(order)
        return self.hear()


@contextmanager
def rivals(url: str, path: Path, place: str) -> Iterator[tuple[Rival, Rival]]:
    """Two processes that have loaded the same view."""
    with start("one", url, path, place) as first, start("one", url, path, place) as second:
        both = Rival(first), Rival(second)
        assert both[0].ask("load") == both[1].ask("load")
        yield both
        for process in (first, second):
            process.communicate(timeout=10)
            assert process.returncode == 0


def check_one_chain(store: SessionDB, *, rotates: bool) -> list[str]:
    """Check that passes and sessions make one chain without a branch; return its sessions."""
    committed = [row for row in store.passes("s") if row.status is PassStatus.COMMITTED]
    generations = [row.generation for row in committed]
    assert generations == list(range(1, len(committed) + 1))
    assert store.head("s").generation == len(committed)
    [tip] = store.sessions()
    chain = [tip.id]
    while (parent := store.session(chain[0]).parent_session_id) is not None:
        chain.insert(0, parent)
    children = [row.child_session_id for row in committed if row.child_session_id]
    assert chain == ["s", *children]
    assert len(chain) == (len(committed) + 1 if rotates else 1)
    assert {store.find_session(name).id for name in chain} == {tip.id}
    return chain


def check_rows(store: SessionDB, before: list[dict[str, Any]], texts: list[str]) -> None:
    """Check that what was accepted before is there, and each message once."""
    oracle = Oracle("s")
    oracle.note(*before, *({"role": "user", "content": text} for text in texts))
    oracle.check_union(store)
    readable = {wire_message(row)["content"] for row in store.accepted_rows("s", 1, 10_000)}
    assert set(texts) <= readable
    assert store.check().problems == []


def accepted(path: Path) -> list[dict[str, Any]]:
    store = SessionDB(db_path=path)
    rows = [wire_message(row) for row in store.accepted_rows("s", 1, 10_000)]
    store.close()
    return rows


@pytest.mark.fuller
@pytest.mark.parametrize("place", PLACES)
def test_d19_processes_that_compact_at_once_make_one_chain_and_lose_nothing(stub, filled, place):
    before = accepted(filled)
    with start("many", stub.base_url, filled, place, PROCESSES, ROUNDS) as crowd:
        out, _errors = crowd.communicate()
    assert crowd.returncode == 0
    told = [orjson.loads(line) for line in out.splitlines()]
    assert Counter(line["round"] for line in told) == dict.fromkeys(range(ROUNDS), PROCESSES)
    for number in range(ROUNDS):
        seen = [(line["generation"], line["view"]) for line in told if line["round"] == number]
        assert len(set(seen)) == 1, "some process did not adopt the head of the others"
    ways = Counter((line["status"], line["class"]) for line in told)
    assert 1 <= ways[("committed", "")] < len(told)
    assert ways.keys() <= WAYS
    store = SessionDB(db_path=filled)
    check_one_chain(store, rotates=place == "rotating")
    check_rows(store, before, [line["text"] for line in told])
    assert stub.requests
    assert [request.refusal for request in stub.requests if request.refusal] == []
    store.close()


@pytest.mark.parametrize("place", PLACES)
def test_d19_who_comes_after_a_finished_pass_goes_on_from_its_head(stub, filled, place):
    before = accepted(filled)
    with rivals(stub.base_url, filled, place) as (first, second):
        assert first.ask("compact")["status"] == "committed"
        texts = [f"later {number}: " + "what the other one knows. " * 200 for number in range(6)]
        texts = [text.strip() for text in texts]
        for text in texts:
            second.ask(f"append {text}")
        assert second.ask("compact")["status"] == "committed"
        assert first.ask("load") == second.ask("load")
    store = SessionDB(db_path=filled)
    check_one_chain(store, rotates=place == "rotating")
    check_rows(store, before, texts)
    store.close()


@pytest.mark.parametrize("place", PLACES)
def test_d19_a_pass_planned_on_a_view_that_is_gone_is_superseded_and_loses_no_message(
    stub, filled, place
):
    before = accepted(filled)
    with rivals(stub.base_url, filled, place) as (first, second):
        second.ask("append stale but here")
        second.send("hold")
        assert second.hear() == {"held": True}
        assert first.ask("compact")["status"] == "committed"
        late = second.ask("go on")
        assert (late["status"], late["class"]) == ("superseded", "attempt_superseded")
        assert first.ask("load") == second.ask("load")
    store = SessionDB(db_path=filled)
    check_one_chain(store, rotates=place == "rotating")
    check_rows(store, before, ["stale but here"])
    assert "stale but here" in [row["content"] for row in store.view("s").messages]
    store.close()


@pytest.mark.parametrize("place", PLACES)
def test_d19_a_caller_with_an_old_list_gets_the_new_head_with_its_message(stub, filled, place):
    """The list is what a program held since before the other one compacted."""
    before = accepted(filled)
    compression = CompressionSettings(in_place=place == "in_place")
    settings = settings_for(stub.base_url, window_tokens=WINDOW, compression=compression)
    stores = [SessionDB(db_path=filled) for _ in range(2)]
    first, second = (Bench(stub, store, settings) for store in stores)
    pending = {"role": "user", "content": "mine: " + "what only this program knows. " * 300}
    old_list = [*second.view, pending]
    assert first.agent.compress().status is PassStatus.COMMITTED
    messages, _prompt = compress_context(second.agent, old_list, "system", force=True)
    assert messages == stores[0].view("s").messages
    assert second.committed == first.committed
    check_one_chain(stores[1], rotates=place == "rotating")
    check_rows(stores[1], before, [pending["content"]])
    for bench, store in zip((first, second), stores, strict=True):
        bench.agent.close()
        store.close()
