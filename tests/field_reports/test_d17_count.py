"""D17: a tool result of any size is stored whole and shown as an excerpt that can be read on."""

from __future__ import annotations

import hashlib
import math
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.base.settings import CompressionSettings
from agent.testing.builders import assistant, call, result, user
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.stub_strict import count_tokens
from agent.tools.protocol import Access, Tool
from agent.tools.recall import RECALL
from tests.field_reports.harness import SUMMARISER, Bench, settings_for, words

WINDOW = 32_000
LOG_BYTES, SECONDS, TIMES_MEMORY = 10_000_000, 2.0, 3
PARALLEL, EACH_BYTES = 30, 40_000
LINE = "2026-11-30T12:00:00.{:07} INFO worker[{:04}] request {:07} was answered in 37 ms\n"
REFERENCE = re.compile(
    r"\[(\d+) of (\d+) characters left out here; "
    r'read on with recall\(rows="(\d+)", offset=(\d+)\)\]'
)


def log_of(size: int) -> str:
    """Return a log of exactly `size` characters, every line its own."""
    lines = (LINE.format(n, n % 97, n * 31) for n in range(size // 70 + 1))
    return "".join(lines)[:size]


def reference_in(text: str) -> re.Match[str]:
    """Return the line that says how to read on: characters left out and in all, row, offset."""
    found = REFERENCE.search(text)
    assert found is not None
    return found


@pytest.fixture
def stub():
    with StubModelServer(window_tokens=WINDOW) as server:
        yield server


@pytest.fixture
def open_tool(stub, open_bench):
    def open_one(output, **options):
        tool = Tool(
            name="fetch",
            description="Fetches.",
            parameters={"type": "object", "properties": {"n": {"type": "integer"}}},
            access=Access.READ,
            run=lambda arguments, _context: output(arguments.get("n", 0)),
            describe=lambda _arguments: "fetch",
        )
        return open_bench(
            settings_for(stub.base_url, window_tokens=WINDOW), tools=[tool, RECALL], **options
        )

    return open_one


def check_slices(bench: Bench, seq: int, text: str, *, start: int = 0) -> None:
    """Check that a row can be read on in slices from `start` to its end, byte-exact."""
    while start < len(text):
        [row] = bench.agent.recall(rows=str(seq), budget_tokens=100_000, offset=start)
        assert row["content"]
        assert text.startswith(row["content"], start)
        start += len(row["content"])


@pytest.mark.parametrize("size", [70_000, 1_000_000, LOG_BYTES])
def test_d17_the_next_request_shows_head_tail_and_a_reference_to_the_stored_whole(
    stub, open_tool, size
):
    log = log_of(size)
    bench = open_tool(lambda _n: log)
    stub.script([Reply(text=None, tool_calls=[call("fetch", call_id="t1")])])
    started = time.monotonic()
    assert bench.agent.chat("fetch the log") == "ok"
    assert time.monotonic() - started < 4 * SECONDS

    request = bench.main_requests[-1]
    assert count_tokens(request.messages, request.body.get("tools") or ()) < WINDOW / 2
    _system, asked, called, shown = request.messages
    assert asked == user("fetch the log")
    assert called["tool_calls"][0]["id"] == shown["tool_call_id"] == "t1"
    match = reference_in(shown["content"])
    left_out, total, seq, offset = map(int, match.groups())
    assert (total, seq) == (size, 3)
    assert shown["content"].startswith(log[:offset])
    assert shown["content"].endswith(log[offset + left_out :])
    assert left_out + len(shown["content"]) - len(match[0]) - 2 == size
    check_slices(bench, 3, log, start=max(0, size - 1_000_000))
    assert bench.rows[2]["content"] == log
    assert bench.passes == []
    assert bench.summary_requests == []
    assert len(bench.main_requests) == 2
    assert bench.refusals == []


def test_d17_thirty_results_of_one_round_share_a_quarter_of_the_window(stub, open_tool):
    bench = open_tool(lambda n: log_of(EACH_BYTES + n))
    calls = [call("fetch", {"n": n}, call_id=f"t{n}") for n in range(PARALLEL)]
    stub.script([Reply(text=None, tool_calls=calls)])
    assert bench.agent.chat("fetch them all") == "ok"
    request = bench.main_requests[-1]
    shown = [message for message in request.messages if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in shown] == [f"t{n}" for n in range(PARALLEL)]
    assert count_tokens(request.messages) < WINDOW / 2
    for n, message in enumerate(shown):
        left_out, total, seq, _offset = map(int, reference_in(message["content"]).groups())
        assert total == EACH_BYTES + n
        assert 0 < left_out < total
        check_slices(bench, seq, log_of(total))
    assert bench.passes == []
    assert bench.summary_requests == []
    assert bench.refusals == []


def test_d17_the_reference_works_when_the_model_executes_it_literally(stub, open_tool):
    log = log_of(200_000)
    bench = open_tool(lambda _n: log)

    def answer(request):
        newest = request.messages[-1]
        if newest["role"] == "user":
            return Reply(text=None, tool_calls=[call("fetch")])
        match = REFERENCE.search(str(newest["content"]))
        if match is None:
            return Reply(text="read")
        arguments = {"rows": match[3], "offset": int(match[4]), "budget_tokens": 2_000}
        return Reply(text=None, tool_calls=[call("recall", arguments)])

    stub.script(answer)
    assert bench.agent.chat("fetch the log") == "read"
    recalled = bench.main_requests[-1].messages[-1]["content"]
    head, text = recalled.split("\n", 1)
    offset = int(head.partition("characters ")[2].partition(" to")[0])
    assert offset > 0
    assert log[offset:].startswith(text[:1_000])
    assert bench.refusals == []


def test_d17_many_such_rounds_still_fit_and_passes_take_the_old_ones_away(stub, open_tool):
    bench = open_tool(lambda n: log_of(EACH_BYTES + n))
    rounds = [
        Reply(text=None, tool_calls=[call("fetch", {"n": n}) for n in range(5 * k, 5 * k + 5)])
        for k in range(7)
    ]
    stub.script([*rounds, Reply(text="done")])
    assert bench.agent.chat("fetch again and again") == "done"
    assert len(bench.main_requests) == 8
    assert bench.committed
    assert bench.summary_requests == []
    sizes = [count_tokens(request.messages) for request in bench.main_requests]
    assert max(sizes) < WINDOW - bench.agent.reserve_tokens
    assert bench.refusals == []


@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
@given(
    sizes=st.lists(st.sampled_from([0, 1, 3_000, 60_000, 66_000, 150_000]), min_size=1, max_size=4)
)
@settings(
    max_examples=math.ceil(settings().max_examples / 4),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_d17_any_round_fits_and_every_result_is_kept_byte_exact(stub, open_tool, sizes, wide):
    outputs = [("日志" * size if wide else log_of(size))[:size] for size in sizes]
    bench = open_tool(lambda n: outputs[n], session_id=f"s{len(stub.requests)}")
    calls = [call("fetch", {"n": n}, call_id=f"t{n}") for n in range(len(sizes))]
    stub.script([Reply(text=None, tool_calls=calls)])
    seen = len(stub.requests)
    assert bench.agent.chat("fetch") == "ok"
    assert [request.refusal for request in stub.requests[seen:] if request.refusal] == []
    kept = {row["tool_call_id"]: row["content"] for row in bench.rows if row["role"] == "tool"}
    assert kept == {f"t{n}": output for n, output in enumerate(outputs)}
    assert stub.requests_for(SUMMARISER) == []


def test_d17_time_and_memory_stay_within_a_few_times_the_result(stub, tmp_path):
    """In a process of its own, so that its peak is the turn's."""
    stub.script([Reply(text=None, tool_calls=[call("fetch", call_id="t1")])])
    child = Path(__file__).with_name("large_result.py")
    ran = subprocess.run(
        [sys.executable, str(child), stub.base_url, str(tmp_path / "large.db"), str(LOG_BYTES)],
        capture_output=True,
        text=True,
        timeout=18,
        check=True,
    )
    seconds, grown_bytes, digest = ran.stdout.split()
    assert digest == hashlib.sha256(log_of(LOG_BYTES).encode()).hexdigest()
    assert float(seconds) < 4 * SECONDS
    assert int(grown_bytes) < 4 * TIMES_MEMORY * LOG_BYTES


@pytest.mark.parametrize("size", [200_000, 2_000_000])
def test_d17_what_users_and_models_wrote_at_that_size_fits_too(stub, open_tool, size):
    bench = open_tool(lambda _n: "")
    bench.fill([user("begin"), assistant("fine")])
    assert bench.agent.chat(log_of(size)) == "ok"
    [notice] = bench.notices
    assert "#3" in notice
    request = bench.main_requests[-1]
    assert count_tokens(request.messages) < WINDOW / 2
    assert REFERENCE.search(request.messages[-1]["content"])
    assert bench.rows[2]["content"] == log_of(size)
    assert bench.passes == []


def test_d17_a_long_result_before_the_newest_request_stays_an_excerpt(stub, open_tool):
    bench = open_tool(lambda _n: "")
    made = call("fetch", call_id="t1")
    bench.fill([user("fetch"), assistant(None, made), result(made, log_of(LOG_BYTES))])
    for _ in range(3):
        assert bench.agent.chat("and?") == "ok"
    assert bench.passes == []
    assert bench.refusals == []


def test_d17_request_and_round_share_what_heavy_tools_leave_of_a_small_window(stub, open_bench):
    """Each within its quarter they would not fit beside the tools: both are cut further. No pass
    can help here, so none is allowed."""
    window = 4_096
    tool = Tool(
        name="fetch",
        description=words(1_700, "fetching"),
        parameters={"type": "object", "properties": {}},
        access=Access.READ,
        run=lambda _arguments, _context: words(9_000, "output"),
        describe=lambda _arguments: "fetch",
    )
    compression = CompressionSettings(enabled=False)
    setup = settings_for(stub.base_url, window_tokens=window, compression=compression)
    bench = open_bench(setup, tools=[tool, RECALL])
    calls = [call("fetch") for _ in range(3)]
    stub.script([Reply(text=words(300, "plan"), tool_calls=calls)])
    assert bench.agent.chat(words(3_000, "request")) == "ok"
    request = bench.main_requests[-1]
    assert count_tokens(request.messages, request.body["tools"]) <= window
    shown = [m["content"] for m in request.messages if m["role"] in ("user", "tool")]
    assert all(REFERENCE.search(text) for text in shown)
    assert len(shown) == 4
    assert bench.passes == []
    assert bench.refusals == []
