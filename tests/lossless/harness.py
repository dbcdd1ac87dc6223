"""A long conversation whose summariser returns nonsense, and what its requests show."""

from __future__ import annotations

import random
from pathlib import Path

from agent.base.extract import extract
from agent.base.messages import Message, text_of
from agent.base.settings import AuxiliarySettings, CompressionSettings, Settings
from agent.providers.protocol import ModelRequest
from agent.testing.builders import assistant, call, result, user
from agent.testing.scripted import ScriptedProvider
from hermes_state import SessionDB
from run_agent import AIAgent

NONSENSE = """\
## Current request and state
Purple giraffes were counting umbrellas beside the lighthouse when somebody whistled twice.
## Done
Nine teapots learned to juggle, a violin was painted, and the moon asked for directions home.
## Decisions
Marmalade counts as weather on alternate afternoons because the clock prefers velvet to gravel.
## Open questions
Whether a sandwich may sing, and which of the two staircases remembers the taste of thunder."""

RULES = (
    "Never rename a public function without telling me.",
    "From now on write commit messages in the imperative.",
    "Ändere niemals die Datei schema.lock.",
    "Ne supprime jamais les sauvegardes sans demander.",
    "No toques la rama release-7 nunca.",
    "日志里不能出现手机号。",
    "本番の設定は変更しないでください。",
)


def nonsense(request: ModelRequest) -> str:
    """Answer a summary request with nonsense, any other with a short word."""
    last = text_of(request.messages[-1].get("content"))
    return NONSENSE if "<material>" in last or "<notes>" in last else "Understood."


def open_agent(path: Path, *, window_tokens: int = 16_384) -> AIAgent:
    provider = ScriptedProvider(nonsense, window_tokens=window_tokens)
    settings = Settings(
        compression=CompressionSettings(threshold=0.85), auxiliary=AuxiliarySettings()
    )
    agent = AIAgent(
        session_db=SessionDB(path),
        session_id="s",
        settings=settings,
        provider=provider,
        skip_memory=True,
        skip_context_files=True,
    )
    agent.store.create_session("s", "test")
    return agent


def requests_of(agent: AIAgent) -> list[ModelRequest]:
    """Return the requests of turns, without those to the summariser."""
    provider = agent.provider
    assert isinstance(provider, ScriptedProvider)
    return [
        request
        for request in provider.requests
        if "<material>" not in text_of(request.messages[-1].get("content"))
    ]


def shown(request: ModelRequest) -> str:
    """Return everything that a request says, without its system prompt."""
    return "\n".join(text_of(message.get("content")) for message in request.messages[1:])


def work(rng: random.Random, number: int) -> list[Message]:
    """Return one stretch of work with identifiers of its own."""
    path = f"src/mod_{number}/file_{rng.randrange(10**6)}.py"
    commit = f"{rng.randrange(16**10):010x}a1"
    ticket = f"OPS-{rng.randrange(1_000, 99_999)}"
    made = call("read_file", {"path": path})
    log = "\n".join(
        f"step {line}: checked part {rng.randrange(10**5)} of {path}" for line in range(30)
    )
    return [
        user(
            f"Please look at {path}, ticket {ticket}, the port is {rng.randrange(2_000, 60_000)}."
        ),
        assistant(None, made),
        result(made, f"{log}\ncommit {commit}\nValueError: bad row {rng.randrange(10**6)}"),
        assistant(f"I changed {path} in commit {commit}; {ticket} is done."),
        user(rng.choice(["ok", "thanks", "go on", "nice", "great, next"])),
        assistant("Going on."),
    ]


def identifiers(rows: list[Message]) -> set[str]:
    """Return every identifier that accepted rows hold."""
    return {
        each.value
        for row in rows
        for each in extract(text_of(row.get("content")), row["role"])
        if each.kind in ("identifier", "value")
    }
