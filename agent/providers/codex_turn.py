"""One turn of the Codex app-server: its events become text, tool events, questions and a reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent.base.errors import (
    AuthError,
    CallTimeout,
    ContentFiltered,
    ContextOverflow,
    OverloadError,
    ProviderError,
    QuotaError,
    RateError,
    RequestRefused,
)
from agent.base.events import ApprovalRequested, ToolFinished, ToolStarted
from agent.base.messages import clean_text
from agent.providers.codex_rpc import Exchange, Line
from agent.providers.protocol import Delta

_ERRORS: dict[str, type[ProviderError]] = {
    "contextWindowExceeded": ContextOverflow,
    "sessionBudgetExceeded": QuotaError,
    "usageLimitExceeded": QuotaError,
    "rateLimitExceeded": RateError,
    "modelNotFound": RequestRefused,
    "cyberPolicy": ContentFiltered,
    "bioPolicy": ContentFiltered,
    "misalignmentPolicyViolation": ContentFiltered,
    "inferenceHookDenied": ContentFiltered,
    "unauthorized": AuthError,
    "badRequest": RequestRefused,
    "sandboxError": RequestRefused,
    "responseTooManyFailedAttempts": CallTimeout,
}
"""What went wrong in a turn; everything else may pass and counts as overload."""

_TOOLS = {
    "commandExecution": lambda item: {"command": item.get("command")},
    "fileChange": lambda item: {"changes": item.get("changes")},
    "mcpToolCall": lambda item: {"tool": item.get("tool"), "arguments": item.get("arguments")},
    "webSearch": lambda item: {"query": item.get("query")},
}
"""Items that are the app-server's own tools, and what they are told about."""

_NOT_DONE = frozenset({"failed", "declined"})


class CodexTurn:
    """Follows one turn of one thread to its end; the lines of other turns are passed over."""

    def __init__(self, exchange: Exchange, thread_id: str, turn_id: str, route: str) -> None:
        self._exchange = exchange
        self._thread_id = thread_id
        self._turn_id = turn_id
        self._route = route
        self._said: dict[str, str] = {}
        self.compacted = False
        """Whether the app-server has compacted its thread in this turn."""
        self.usage: Mapping[str, Any] | None = None
        """The newest `tokenUsage` of the thread."""

    @property
    def text(self) -> str:
        """What was said, messages apart."""
        return clean_text("\n\n".join(text for text in self._said.values() if text.strip()))

    def follow(self) -> str:
        """Return the status with which the turn ended.

        Raises: ProviderError by what the app-server says went wrong; as `Exchange.request`.
        """
        while True:
            line = self._exchange.next_line()
            method, params = str(line.get("method", "")), line.get("params") or {}
            if "id" in line and method:
                self._answer(line, method, params)
            elif self._is_ours(params):
                if method == "turn/completed":
                    return self._end(params["turn"])
                if method in _HEARD:
                    _HEARD[method](self, params)

    def _is_ours(self, params: Mapping[str, Any]) -> bool:
        turn = params.get("turn")
        turn_id = turn.get("id") if isinstance(turn, Mapping) else params.get("turnId")
        return params.get("threadId") == self._thread_id and turn_id == self._turn_id

    # -- notifications ----------------------------------------------------------------------------
    def _text(self, params: Mapping[str, Any]) -> None:
        piece, item_id = str(params.get("delta", "")), str(params.get("itemId"))
        self._exchange.begin_answer()
        if item_id not in self._said and self._said:
            self._tell(Delta(text="\n\n"))
        self._said[item_id] = self._said.get(item_id, "") + piece
        if piece:
            self._tell(Delta(text=clean_text(piece)))

    def _reasoned(self, params: Mapping[str, Any]) -> None:
        self._exchange.begin_answer()
        if params.get("delta"):
            self._tell(Delta(reasoning=clean_text(str(params["delta"]))))

    def _tell(self, delta: Delta) -> None:
        if self._exchange.watch.on_delta is not None:
            self._exchange.watch.on_delta(delta)

    def _item_started(self, params: Mapping[str, Any]) -> None:
        item = params.get("item") or {}
        if item.get("type") in _TOOLS and self._exchange.watch.on_event is not None:
            told = _TOOLS[item["type"]](item)
            self._exchange.watch.on_event(
                ToolStarted(name=item["type"], arguments=told, call_id=str(item.get("id")))
            )

    def _item_completed(self, params: Mapping[str, Any]) -> None:
        item = params.get("item") or {}
        kind = item.get("type")
        if kind == "agentMessage":
            self._message(str(item.get("id")), str(item.get("text", "")))
        elif kind == "contextCompaction":
            self.compacted = True
        elif kind in _TOOLS and self._exchange.watch.on_event is not None:
            output = str(item.get("aggregatedOutput") or "")
            self._exchange.watch.on_event(
                ToolFinished(
                    call_id=str(item.get("id")),
                    ok=item.get("status") not in _NOT_DONE,
                    bytes=len(output.encode()),
                    duration_ms=item.get("durationMs") or 0,
                )
            )

    def _message(self, item_id: str, text: str) -> None:
        """Take a message as it ended; what no delta brought is told."""
        before = self._said.get(item_id, "")
        if not before and text:
            self._text({"itemId": item_id, "delta": text})
        self._said[item_id] = text or before

    def _counted(self, params: Mapping[str, Any]) -> None:
        self.usage = params.get("tokenUsage") or self.usage

    def _compacted(self, _params: Mapping[str, Any]) -> None:
        self.compacted = True

    def _end(self, turn: Mapping[str, Any]) -> str:
        for item in turn.get("items") or ():
            if item.get("type") == "agentMessage":
                self._message(str(item.get("id")), str(item.get("text", "")))
        if turn.get("status") == "failed":
            raise self._fault(turn.get("error") or {})
        return str(turn.get("status"))

    def _fault(self, error: Mapping[str, Any]) -> ProviderError:
        info = error.get("codexErrorInfo")
        name = next(iter(info), "") if isinstance(info, Mapping) else str(info)
        kind = _ERRORS.get(name, OverloadError)
        said = " ".join(str(error.get("message", "")).split()) or "the turn failed"
        return kind(f"{self._route}: {said}; see what `codex` says by itself", route=self._route)

    # -- questions --------------------------------------------------------------------------------
    def _answer(self, line: Line, method: str, params: Mapping[str, Any]) -> None:
        """Answer a request of the server: approvals are a person's, all else is not offered."""
        if method not in _APPROVALS:
            fault = {"code": -32601, "message": f"{method} is not offered by this client"}
            self._exchange.connection.send({"id": line["id"], "error": fault})
            return
        allowed = self._is_ours(params) and self._ask(params)
        result = _APPROVALS[method](params, allowed)
        self._exchange.connection.send({"id": line["id"], "result": result})

    def _ask(self, params: Mapping[str, Any]) -> bool:
        watch, call_id = self._exchange.watch, str(params.get("itemId"))
        what = params.get("command") or params.get("grantRoot") or "change files"
        why = f"codex wants to run {what!r}" if params.get("command") else f"codex asks: {what}"
        if params.get("reason"):
            why += f" ({params['reason']})"
        if watch.on_event is not None:
            watch.on_event(ApprovalRequested(call_id=call_id, why=why))
        return watch.confirm is not None and self._exchange.ask(watch.confirm, call_id, why)


_HEARD: dict[str, Callable[[CodexTurn, Mapping[str, Any]], None]] = {
    "item/agentMessage/delta": CodexTurn._text,
    "item/reasoning/summaryTextDelta": CodexTurn._reasoned,
    "item/reasoning/textDelta": CodexTurn._reasoned,
    "item/started": CodexTurn._item_started,
    "item/completed": CodexTurn._item_completed,
    "thread/tokenUsage/updated": CodexTurn._counted,
    "thread/compacted": CodexTurn._compacted,
}


def _decision(_params: Mapping[str, Any], allowed: bool) -> dict[str, Any]:
    return {"decision": "accept" if allowed else "decline"}


def _permissions(params: Mapping[str, Any], allowed: bool) -> dict[str, Any]:
    return {"permissions": params.get("permissions") if allowed else {}}


_APPROVALS: dict[str, Callable[[Mapping[str, Any], bool], dict[str, Any]]] = {
    "item/commandExecution/requestApproval": _decision,
    "item/fileChange/requestApproval": _decision,
    "item/permissions/requestApproval": _permissions,
}
