"""Clients that people use, unchanged, live through long conversations with tools behind the proxy.

Each client runs in the environment that has it, as a script that reads prompts and tool results
from its standard input; the strict stub plays the model.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.base.messages import Message
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from agent.tools.recall import recall_text
from agent.turn.reader import StoredRows
from hermes_state import SessionDB
from tests.conftest import NODE_FOLDER, ORACLES_PYTHON
from tests.proxy.serving import serving
from tests.proxy.talk import OtherSide, bodies_of_client, dense, text_in

pytestmark = pytest.mark.timeout(240)  # a client alone takes seconds to start

_HEAD = """
import asyncio, json, os, sys
base_url, plan = sys.argv[1], json.load(sys.stdin)
prompts, results = plan["prompts"], plan["results"]
"""

OPENAI = (
    _HEAD
    + """
from openai import OpenAI
client = OpenAI(base_url=base_url, api_key="key-of-one", max_retries=0)
tool = {"type": "function", "function": {"name": "read_file", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}}}}}
messages = [{"role": "system", "content": "You read files."}]
count = 0
for prompt in prompts:
    messages.append({"role": "user", "content": prompt})
    while True:
        count += 1
        ask = dict(model="stub-model", messages=messages, tools=[tool])
        if count % 2:
            message = client.chat.completions.create(**ask).choices[0].message
        else:
            with client.chat.completions.stream(**ask) as stream:
                for _event in stream:
                    pass
                message = stream.get_final_completion().choices[0].message
        messages.append(message)
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            path = json.loads(call.function.arguments)["path"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": results[path]})
print(len(messages) - 1)
"""
)

PYDANTIC_AI = (
    _HEAD
    + """
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from openai import AsyncOpenAI
openai = AsyncOpenAI(base_url=base_url, api_key="key-of-one", max_retries=0)
model = OpenAIChatModel("stub-model", provider=OpenAIProvider(openai_client=openai))
agent = Agent(model, instructions="You read files.")

@agent.tool_plain
def read_file(path: str) -> str:
    return results[path]

async def main():
    history = []
    for place, prompt in enumerate(prompts):
        if place % 2:
            async with agent.run_stream(prompt, message_history=history) as run:
                await run.get_output()
            history = run.all_messages()
        else:
            history = (await agent.run(prompt, message_history=history)).all_messages()
    await openai.close()
    parts = [part for message in history for part in message.parts]
    results_and_prompts = [p for p in parts if p.part_kind in ("user-prompt", "tool-return")]
    answers = [message for message in history if message.kind == "response"]
    print(len(results_and_prompts) + len(answers))

asyncio.run(main())
"""
)

LANGCHAIN = (
    _HEAD
    + """
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

@tool
def read_file(path: str) -> str:
    "Read a file."
    return results[path]

chat = ChatOpenAI(base_url=base_url, api_key="key-of-one", model="stub-model", max_retries=0)
chat = chat.bind_tools([read_file])
messages = [SystemMessage("You read files.")]
for place, prompt in enumerate(prompts):
    messages.append(HumanMessage(prompt))
    while True:
        if place % 2:
            answer = None
            for chunk in chat.stream(messages):
                answer = chunk if answer is None else answer + chunk
        else:
            answer = chat.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            break
        for call in answer.tool_calls:
            messages.append(ToolMessage(results[call["args"]["path"]], tool_call_id=call["id"]))
print(len(messages) - 1)
"""
)

LLM = (
    _HEAD
    + """
import pathlib
home = pathlib.Path(os.environ["LLM_USER_PATH"])
(home / "extra-openai-models.yaml").write_text(
    f"- model_id: stub\\n  model_name: stub-model\\n  api_base: {base_url}\\n"
    "  supports_tools: true\\n"
)
(home / "results.json").write_text(json.dumps(results))
functions = f'''
import json
def read_file(path: str) -> str:
    "Read a file."
    return json.load(open({str(home / "results.json")!r}))[path]
'''
from click.testing import CliRunner
from llm.cli import cli
for place, prompt in enumerate(prompts):
    words = ["prompt", "-m", "stub", "--key", "key-of-one", "--functions", functions, prompt]
    if place:
        words.insert(1, "-c")
    if place % 2:
        words.insert(1, "--no-stream")
    ran = CliRunner().invoke(cli, words)
    if ran.exit_code:
        raise SystemExit(f"{ran.output} {ran.exception!r}")
print(len(prompts) * 3 + len(results))
"""
)


def run(script: str, base_url: str, rows: Sequence[Message], tmp_path: Path) -> str:
    """Run a client's script with the plan of a conversation and return what it printed."""
    paths = {
        call["id"]: json.loads(call["function"]["arguments"])["path"]
        for row in rows
        for call in row.get("tool_calls") or ()
    }
    plan = {
        "prompts": [row["content"] for row in rows if row["role"] == "user"],
        "results": {
            paths[row["tool_call_id"]]: row["content"] for row in rows if row["role"] == "tool"
        },
    }
    words = (
        ["node", str(NODE_FOLDER / "client.mjs"), base_url]
        if script == "node"
        else [str(ORACLES_PYTHON), "-c", script, base_url]
    )
    ran = subprocess.run(
        words,
        input=json.dumps(plan),
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "LLM_USER_PATH": str(tmp_path),
            "LANGSMITH_TRACING": "false",
            "NO_PROXY": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr[-3_000:]
    return ran.stdout.strip()


def live_through(script: str, talk: tuple[list[Message], list[str]], tmp_path: Path) -> None:
    """Let a client live through a conversation and check that nothing was refused or lost."""
    rows, facts = talk
    store = SessionDB(tmp_path / "state.db")
    other = OtherSide(rows)
    with (
        StubModelServer(other, window_tokens=8_192) as stub,
        serving(store, stub.base_url) as url,
    ):
        printed = run(script, url, rows, tmp_path)
    try:
        assert printed == str(len(rows))
        assert [request.refusal for request in stub.requests if request.refusal] == []
        [session] = store.sessions()
        assert session.message_count == len(rows)
        assert session.pass_count > 0
        stored = store.accepted_rows(session.id, 1, len(rows))
        kept = ("role", "content", "tool_call_id")
        told = [{key: row[key] for key in kept if row.get(key)} for row in rows]
        assert [{key: row[key] for key in kept if row.get(key)} for row in stored] == told
        shown = text_in(bodies_of_client(stub.requests)[-1])
        reader = StoredRows(store, session.id)
        for fact in facts:
            assert fact in shown or fact in recall_text(reader, query=fact.split()[-1])
        assert store.check().problems == []
    finally:
        store.close()


@pytest.mark.oracles
@pytest.mark.parametrize(
    ("script", "turns", "calls"),
    [(OPENAI, 25, 9), (PYDANTIC_AI, 25, 9), (LANGCHAIN, 5, 4), (LLM, 5, 4)],
    ids=["openai, 300 messages", "pydantic-ai, 300", "LangChain, 35", "llm, 35"],
)
def test_a_python_client_never_hits_the_wall(
    script: str, turns: int, calls: int, tmp_path: Path
) -> None:
    live_through(script, dense(turns, calls=calls, lines=20 if turns > 9 else 60), tmp_path)


@pytest.mark.node
def test_the_node_client_never_hits_the_wall(tmp_path: Path) -> None:
    live_through("node", dense(5, calls=4, lines=60), tmp_path)


OPENAI_FAULTS = """
import json, sys
import openai
client = openai.OpenAI(base_url=sys.argv[1], api_key="key-of-one", max_retries=0)
json.load(sys.stdin)
seen = []
for model in ("wrong-key", "slow-down", "too-much"):
    try:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}])
    except openai.APIStatusError as error:
        seen.append([type(error).__name__, error.status_code, error.response.headers.get("x-odd")])
image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
parts = [{"type": "text", "text": "what is it?"}, image]
answer = client.chat.completions.create(
    model="seeing", messages=[{"role": "user", "content": parts}]
)
seen.append(answer.choices[0].message.content)
stream = client.chat.completions.create(
    model="endless", messages=[{"role": "user", "content": "go"}], stream=True
)
for chunk in stream:
    if chunk.choices[0].delta.content:
        seen.append(chunk.choices[0].delta.content)
        break
stream.close()
client.close()
print(json.dumps(seen))
"""


@pytest.mark.oracles
def test_errors_images_and_cancel_reach_the_openai_client(tmp_path: Path) -> None:
    store = SessionDB(tmp_path / "state.db")
    with StubModelServer() as stub, serving(store, stub.base_url) as url:
        for model, status in (("wrong-key", 401), ("slow-down", 429), ("too-much", 402)):
            stub.script([], model=model, then=Reply(status=status, headers={"x-odd": model}))
        stub.script([Reply(text="a dot")], model="seeing")
        endless = Reply(chunks=["word", "more"], stall_after_chars=4, comments_every_s=0.02)
        stub.script([endless], model="endless")
        seen = json.loads(run(OPENAI_FAULTS, url, [], tmp_path))
        [cancelled] = stub.requests_for("endless")
        assert cancelled.done.wait(10)
    kept = {
        tuple(str(row["content"]) for row in store.view(s.id).messages) for s in store.sessions()
    }
    store.close()
    assert seen == [
        ["AuthenticationError", 401, "wrong-key"],
        ["RateLimitError", 429, "slow-down"],
        ["APIStatusError", 402, "too-much"],
        "a dot",
        "word",
    ]
    assert cancelled.client_closed_at is not None
    assert ("go", "word") in kept
