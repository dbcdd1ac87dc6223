"""A stand-in for `codex app-server`: the same messages over standard input and output, scripted.

Run as `python -m agent.testing.codex_app_server FOLDER`. FOLDER keeps the threads, so that they
outlive the process; `script.json` in it is a list of steps, one for each turn; every message that
arrives is appended to `received.jsonl`. Shapes are those of the schemas of codex-cli 0.171.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_REQUIRED = {
    "initialize": ("clientInfo",),
    "thread/start": (),
    "thread/resume": ("threadId",),
    "turn/start": ("input", "threadId"),
    "turn/interrupt": ("threadId", "turnId"),
    "thread/compact/start": ("threadId",),
}
_KNOWN = {
    "thread/start": {
        "cwd",
        "approvalPolicy",
        "sandbox",
        "model",
        "developerInstructions",
        "config",
    },
    "thread/resume": {"threadId", "excludeTurns"},
    "turn/start": {"threadId", "input"},
}
_INPUTS = {"text": {"type", "text", "text_elements"}, "image": {"type", "url"}}
_INVALID = -32600


class _Fault(Exception):
    """A request that is answered with an error."""


class Standin:
    """One process. A step may hold `text`, `messages` (several texts), `reasoning`, `approve` (a
    command to ask about), `compact`, `fail` (an error's name), `hang` and `exit`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: set[str] = set()
        self._greeted = False
        self._asked = 0

    def serve(self) -> None:
        """Answer until standard input ends."""
        for raw in sys.stdin:
            self._take(json.loads(raw))

    def _take(self, line: Mapping[str, Any]) -> None:
        with (self._folder / "received.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
        method, params = line.get("method"), line.get("params") or {}
        if method == "initialized" or method is None:
            return
        try:
            self._check(method, params)
            after = getattr(self, "_on_" + method.replace("/", "_"))(line["id"], params)
        except _Fault as fault:
            self._say({"id": line["id"], "error": {"code": _INVALID, "message": str(fault)}})
            return
        if after is not None:
            after()

    def _check(self, method: str, params: Mapping[str, Any]) -> None:
        if method not in _REQUIRED:
            raise _Fault(f"unknown method {method}")
        if method != "initialize" and not self._greeted:
            raise _Fault("Not initialized")
        lacking = [name for name in _REQUIRED[method] if name not in params]
        unknown = params.keys() - _KNOWN.get(method, params.keys())
        if lacking or unknown:
            raise _Fault(f"invalid params of {method}: {lacking or sorted(unknown)}")

    def _say(self, line: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def _tell(self, method: str, **params: Any) -> None:
        self._say({"method": method, "params": params, "emittedAtMs": 0})

    # -- requests ---------------------------------------------------------------------------------
    def _on_initialize(self, number: int, _params: Mapping[str, Any]) -> None:
        self._greeted = True
        result = {"userAgent": "stand-in", "codexHome": str(self._folder), "platformOs": "linux"}
        self._say({"id": number, "result": {**result, "platformFamily": "unix"}})
        self._tell("configWarning", summary="a line that is about no turn", details=None)

    def _on_thread_start(self, number: int, params: Mapping[str, Any]) -> None:
        thread_id = f"thread-{len(list(self._folder.glob('thread-*')))}"
        (self._folder / thread_id).write_text(json.dumps(params), encoding="utf-8")
        self._load(number, thread_id)

    def _on_thread_resume(self, number: int, params: Mapping[str, Any]) -> None:
        if not (self._folder / params["threadId"]).exists():
            raise _Fault(f"no rollout found for thread id {params['threadId']}")
        self._load(number, params["threadId"])

    def _load(self, number: int, thread_id: str) -> None:
        self._loaded.add(thread_id)
        self._say({"id": number, "result": {"thread": {"id": thread_id}}})
        self._tell("thread/started", thread={"id": thread_id})

    def _on_turn_start(self, number: int, params: Mapping[str, Any]) -> Any:
        self._require_loaded(params)
        for each in params["input"]:
            if each.get("type") not in _INPUTS or each.keys() - _INPUTS[each["type"]]:
                raise _Fault(f"invalid input {each}")
        if not params["input"]:
            raise _Fault("input must not be empty")
        turn_id = self._next_turn()
        step = self._step(int(turn_id.partition("-")[2]))
        self._say({"id": number, "result": {"turn": self._turn(turn_id, "inProgress")}})
        return lambda: self._play({"threadId": params["threadId"], "turnId": turn_id}, step)

    def _on_thread_compact_start(self, number: int, params: Mapping[str, Any]) -> Any:
        self._require_loaded(params)
        turn_id = self._next_turn()
        step = {"compact": True, **({"fail": "other"} if self._step(-1).get("fail") else {})}
        self._say({"id": number, "result": {}})
        return lambda: self._play({"threadId": params["threadId"], "turnId": turn_id}, step)

    def _on_turn_interrupt(self, number: int, params: Mapping[str, Any]) -> None:
        self._say({"id": number, "result": {}})
        self._end(dict(params), "interrupted")

    def _require_loaded(self, params: Mapping[str, Any]) -> None:
        if params["threadId"] not in self._loaded:
            raise _Fault(f"thread not found: {params['threadId']}")

    # -- turns ------------------------------------------------------------------------------------
    def _next_turn(self) -> str:
        path = self._folder / "turns"
        count = int(path.read_text()) if path.exists() else 0
        path.write_text(str(count + 1))
        return f"turn-{count}"

    def _step(self, number: int) -> dict[str, Any]:
        path = self._folder / "script.json"
        steps = json.loads(path.read_text()) if path.exists() else []
        step: dict[str, Any] = steps[number] if number < len(steps) and steps else {"text": "ok"}
        return step

    def _turn(self, turn_id: str, status: str, **fields: Any) -> dict[str, Any]:
        return {"id": turn_id, "items": [], "status": status, **fields}

    def _end(self, where: dict[str, Any], status: str, **fields: Any) -> None:
        turn: dict[str, Any] = self._turn(where["turnId"], status, **fields)
        self._tell("turn/completed", threadId=where["threadId"], turn=turn)

    def _play(self, where: dict[str, Any], step: Mapping[str, Any]) -> None:
        turn = self._turn(where["turnId"], "inProgress")
        self._tell("turn/started", threadId=where["threadId"], turn=turn)
        other = {**where, "turnId": "turn-of-another"}
        self._tell("item/agentMessage/delta", **other, itemId="x", delta="not for this turn")
        if step.get("exit"):
            sys.stderr.write("the stand-in was told to exit\n")
            raise SystemExit(3)
        if "reasoning" in step:
            place = {**where, "itemId": "rs", "summaryIndex": 0}
            self._tell("item/reasoning/summaryTextDelta", **place, delta=step["reasoning"])
        if step.get("compact"):
            item = {"type": "contextCompaction", "id": "cc"}
            self._tell("item/completed", **where, item=item, completedAtMs=0)
        status = self._approve(where, step["approve"]) if "approve" in step else ""
        for index, text in enumerate(step.get("messages") or [step.get("text") or ""]):
            self._speak(where, f"msg-{index}", text + status)
        if step.get("hang"):
            return
        self._count(where)
        if "fail" in step:
            error = {"message": "it failed", "codexErrorInfo": step["fail"]}
            self._end(where, "failed", error=error)
        else:
            self._end(where, "completed")

    def _speak(self, where: dict[str, Any], item_id: str, text: str) -> None:
        for start in range(0, len(text), 5):
            piece = text[start : start + 5]
            self._tell("item/agentMessage/delta", **where, itemId=item_id, delta=piece)
        item = {"type": "agentMessage", "id": item_id, "text": text}
        self._tell("item/completed", **where, item=item, completedAtMs=0)

    def _count(self, where: dict[str, Any]) -> None:
        turns = int((self._folder / "turns").read_text())
        last = {"inputTokens": 100, "cachedInputTokens": 40, "outputTokens": 10}
        last |= {"reasoningOutputTokens": 4, "totalTokens": 110}
        total = {name: count * turns for name, count in last.items()}
        usage = {"last": last, "total": total, "modelContextWindow": 272_000}
        self._tell("thread/tokenUsage/updated", **where, tokenUsage=usage)

    def _approve(self, where: dict[str, Any], command: str) -> str:
        """Ask for a command and run nothing; return how it ended as a text."""
        item: dict[str, Any] = {
            "type": "commandExecution",
            "id": "cmd",
            "command": command,
            "cwd": "/",
        }
        item |= {"commandActions": [], "status": "inProgress"}
        self._tell("item/started", **where, item=item, startedAtMs=0)
        self._asked += 1
        number = f"approval-{self._asked}"
        params = {**where, "itemId": "cmd", "startedAtMs": 0, "command": command, "reason": "risky"}
        method = "item/commandExecution/requestApproval"
        self._say({"id": number, "method": method, "params": params})
        self._say({"id": "input-1", "method": "item/tool/requestUserInput", "params": {**where}})
        while True:
            answer = json.loads(sys.stdin.readline())
            if "method" in answer:
                self._take(answer)
                return " (interrupted)"
            if answer.get("id") == number:
                break
        decision = str(answer["result"]["decision"])
        ended = item | {"status": "completed" if decision == "accept" else "declined"}
        ended |= {"aggregatedOutput": "done", "exitCode": 0, "durationMs": 3}
        self._tell("item/completed", **where, item=ended, completedAtMs=0)
        return f" ({decision})"


if __name__ == "__main__":
    Standin(Path(sys.argv[1])).serve()
