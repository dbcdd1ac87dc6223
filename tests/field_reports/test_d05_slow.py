"""D05: a slow model is not a dead one: first token, silence and total have limits of their own."""

from __future__ import annotations

import time

import pytest

from agent.base.settings import CompressionSettings
from agent.sessions.records import PassStatus
from agent.testing.stub_reply import Reply
from tests.field_reports.harness import SUMMARISER, SUMMARY, settings_for, small_talk

PREFILL_S, TOKEN_EVERY_S, IDLE_S, FIRST_TOKEN_S = 6.0, 1 / 20, 3.0, 30.0
PIECES = [SUMMARY[start : start + 20] for start in range(0, len(SUMMARY), 20)]
WINDOW = 8_000


@pytest.fixture
def compact(stub, open_bench):
    """A function that runs one pass against a summariser and returns its bench and ledger row."""

    def run(reply, *, idle_s, first_token_s, total_s=60.0):
        stub.script([], model=SUMMARISER, then=reply)
        compression = CompressionSettings(
            context_timeout_seconds=idle_s, context_total_ceiling_seconds=total_s
        )
        settings = settings_for(
            stub.base_url,
            window_tokens=WINDOW,
            compression=compression,
            first_token_timeout_seconds=first_token_s,
        )
        bench = open_bench(settings)
        bench.fill(small_talk(20, tokens=150))
        started = time.monotonic()
        record = bench.agent.compress()
        return bench, record, time.monotonic() - started

    return run


@pytest.mark.parametrize("ignore_stream", [False, True], ids=["streamed", "in one piece"])
def test_d05_six_seconds_of_prefill_and_twenty_tokens_a_second_commit(compact, ignore_stream):
    reply = Reply(
        chunks=PIECES,
        before_first_byte_s=PREFILL_S,
        chunk_delay_s=TOKEN_EVERY_S,
        ignore_stream=ignore_stream,
    )
    bench, record, took_s = compact(reply, idle_s=IDLE_S, first_token_s=FIRST_TOKEN_S)
    assert record.status is PassStatus.COMMITTED
    assert took_s > PREFILL_S
    assert len(bench.summary_requests) == 1
    assert bench.cooldown is None
    made = [row for row in bench.view if row.get("_kind") == "summary"]
    assert [row["content"] for row in made] == [SUMMARY]


QUICK_IDLE_S, SILENT_S = 1.2, 3.6
"""An idle limit that no hiccup of the machine reaches, and three times that."""
SURVIVES = {
    "comment lines before the first token": Reply(
        text=SUMMARY, before_first_byte_s=SILENT_S, comments_every_s=0.1
    ),
    "comment lines inside the answer": Reply(
        text=SUMMARY, stall_after_chars=100, stall_s=SILENT_S, comments_every_s=0.1
    ),
    "silence before the first token only": Reply(text=SUMMARY, before_first_byte_s=SILENT_S),
    "headers late as well": Reply(text=SUMMARY, before_first_byte_s=SILENT_S, headers_first=False),
    "in one piece after a silence": Reply(
        text=SUMMARY, before_first_byte_s=SILENT_S, ignore_stream=True
    ),
}


@pytest.mark.parametrize("reply", SURVIVES.values(), ids=SURVIVES)
def test_d05_what_shows_life_is_never_ended_by_the_idle_limit(compact, reply):
    bench, record, took_s = compact(reply, idle_s=QUICK_IDLE_S, first_token_s=15.0)
    assert record.status is PassStatus.COMMITTED
    assert took_s > SILENT_S
    assert len(bench.summary_requests) == 1


DIES = {
    "silence inside the answer": (Reply(text=SUMMARY, stall_after_chars=100), 0.3, 5.0, 60.0),
    "no first token": (Reply(text=SUMMARY, before_first_byte_s=60.0), 5.0, 0.3, 60.0),
    "in one piece, past the total": (
        Reply(text=SUMMARY, before_first_byte_s=60.0, ignore_stream=True),
        0.2,
        0.2,
        0.8,
    ),
    "a trickle past the total": (Reply(text=SUMMARY * 9, chunk_delay_s=0.05), 0.3, 5.0, 0.8),
}


@pytest.mark.parametrize(("reply", "idle_s", "first_token_s", "total_s"), DIES.values(), ids=DIES)
def test_d05_each_limit_still_ends_a_call(compact, reply, idle_s, first_token_s, total_s):
    bench, record, took_s = compact(
        reply, idle_s=idle_s, first_token_s=first_token_s, total_s=total_s
    )
    assert record.status is PassStatus.FAILED
    assert record.failure_class == "summary_network_failure"
    assert took_s < 4 * 1.0
    assert bench.committed == []
    assert bench.cooldown is not None
