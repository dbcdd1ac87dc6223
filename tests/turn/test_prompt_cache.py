"""What a conversation re-reads: the stub keeps a real prefix cache, and the wire cuts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.base.messages import Message
from agent.providers.anthropic import AnthropicMessages
from agent.providers.protocol import CallWatch, Limits, ModelRequest, TokenUsage
from agent.sessions.records import PassStatus
from agent.testing.builders import assistant, call, result, system, user
from agent.testing.stub_reply import RecordedRequest, Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.summaries import GOOD_SUMMARY
from hermes_state import SessionDB
from run_agent import AIAgent

TURNS = 30
PASS_AFTER = 15


def reads_files(request: RecordedRequest) -> Reply:
    """List the folder once in each turn, then answer; a request without tools is a summary's."""
    if not request.body.get("tools"):
        return Reply(text=GOOD_SUMMARY)
    if request.messages[-1]["content"][0]["type"] == "tool_result":
        count = len(request.messages)
        return Reply(text=f"Message {count} shows two files. " + f"It is long, {count}. " * 60)
    listing = call("list_files", {"path": "."}, call_id=f"toolu_{len(request.messages):020d}")
    return Reply(text=None, tool_calls=[listing])


def test_turns_re_read_nothing_and_a_pass_only_what_it_changed(
    stub: StubModelServer, store: SessionDB, tmp_path: Path
) -> None:
    stub.script(reads_files)
    (tmp_path / "files").mkdir()
    for name in ("alpha.txt", "beta.txt"):
        (tmp_path / "files" / name).write_text(name)
    agent = AIAgent(
        base_url=stub.base_url,
        api_mode="anthropic_messages",
        model="m",
        context_length=20_000,
        session_db=store,
        cwd=tmp_path / "files",
        skip_context_files=True,
        skip_memory=True,
    )
    usages: list[TokenUsage] = []
    for turn in range(TURNS):
        run = agent.run_conversation(f"List the files, please; this is run {turn}.")
        usages += [TokenUsage(**row["_usage"]) for row in run.messages if "_usage" in row]
        if turn + 1 == PASS_AFTER:
            assert agent.compress().status is PassStatus.COMMITTED
    agent.close()
    assert [request.refusal for request in stub.requests if request.refusal] == []
    assert len(usages) == 2 * TURNS
    opening = usages[0].cache_write - _first_message_tokens(stub)
    pass_at = 2 * PASS_AFTER
    already = [usage.prompt for usage in usages[:-1]]
    already[pass_at - 1] = opening
    assert [usage.cached for usage in usages] == [0, *already]
    assert [usage.prompt - usage.cached - usage.cache_write for usage in usages] == [0] * 60


def _first_message_tokens(stub: StubModelServer) -> int:
    [block] = stub.requests[0].messages[0]["content"]
    return 4 + -(-len(block["text"]) // 4)


# -- the wire alone -------------------------------------------------------------------------------
def rounds(count: int, calls: int) -> list[Message]:
    """Return stored rows: a request, and rounds of calls with a result of 100 tokens each."""
    messages: list[Message] = [user("begin")]
    for number in range(count):
        made = [call("f", {}, call_id=f"toolu_{number:012d}_{one:06d}") for one in range(calls)]
        messages.append(assistant(None, *made))
        messages += [result(one, "x" * 400) for one in made]
    return [row | {"_row_id": n, "_seq": n} for n, row in enumerate(messages, 1)]


def cached(provider: AnthropicMessages, rows: list[Message]) -> tuple[int, int]:
    """Return (prompt, read from the cache) of a request with these rows."""
    request = ModelRequest(messages=[system("s" * 400), *rows])
    usage: Any = provider.complete(request, limits=Limits(), watch=CallWatch()).usage
    return usage.prompt, usage.cached


def test_a_round_of_many_calls_is_found_again(stub: StubModelServer) -> None:
    provider = AnthropicMessages(base_url=stub.base_url, model="m", window_tokens=100_000)
    rows = rounds(3, 40)
    sent = [cached(provider, rows[: 1 + 41 * count]) for count in range(4)]
    provider.close()
    assert [read for _prompt, read in sent] == [0, *(prompt for prompt, _read in sent[:-1])]


def test_masking_a_result_keeps_what_stands_before_it(stub: StubModelServer) -> None:
    provider = AnthropicMessages(base_url=stub.base_url, model="m", window_tokens=100_000)
    rows = rounds(40, 1)
    sent = [cached(provider, rows[: 1 + 2 * count]) for count in range(1, 41)]
    masked = [*rows]
    masked[60] = rows[60] | {"content": "[old]", "_masked_by": "p1"}
    before_it = sent[28][0]  # the request that ended with the result before
    assert cached(provider, masked)[1] == before_it
    assert cached(provider, masked)[1] == sent[-1][0] - 98
    provider.close()
