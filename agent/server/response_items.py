"""What `/v1/responses` takes: input items and tools, turned into messages and function schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from agent.base.messages import Message
from agent.server.chat import FunctionSpec, Limit
from agent.server.faults import refused
from agent.server.intake import checked
from agent.server.wire import read_content, text_of_parts, unsupported

Content = str | list[dict[str, Any]]


class InputMessage(BaseModel):
    """A message among the items of the input."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Content


class InputCall(BaseModel):
    """A call that the model made, given back."""

    call_id: str = Field(min_length=1)
    name: str
    arguments: str = "{}"


class InputResult(BaseModel):
    """What a call gave."""

    call_id: str = Field(min_length=1)
    output: Content


class ResponseRequest(BaseModel):
    """A response. Fields that are not listed are accepted and have no effect."""

    model: str
    input: str | list[dict[str, Any]] = Field(min_length=1)
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    stream: bool = False
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    max_output_tokens: Limit | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    text: dict[str, Any] | None = None
    background: bool | None = None


def read_input(given: str | Sequence[Mapping[str, Any]]) -> tuple[list[Message], list[str]]:
    """Return the messages of an input, and what its system messages say.

    Raises: Fault for an item that is of no kind that is taken.
    """
    if isinstance(given, str):
        return [{"role": "user", "content": given}], []
    messages: list[Message] = []
    said: list[str] = []
    for number, item in enumerate(given):
        kind = item.get("type", "message")
        read = _READERS.get(kind) if isinstance(kind, str) else None
        if read is None:
            raise refused(
                f"input.{number}: items of type {kind!r} are not taken", code="unsupported_item"
            )
        read(item, f"input.{number}", messages, said)
    return messages, said


def _read_message(
    item: Mapping[str, Any], where: str, messages: list[Message], said: list[str]
) -> None:
    message = checked(InputMessage, item, where=where)
    content = read_content(message.content)
    if message.role in ("system", "developer"):
        said.append(text_of_parts(content))
    else:
        messages.append({"role": message.role, "content": content})


def _read_call(
    item: Mapping[str, Any], where: str, messages: list[Message], _said: list[str]
) -> None:
    call = checked(InputCall, item, where=where)
    function = {"name": call.name, "arguments": call.arguments}
    made = {"id": call.call_id, "type": "function", "function": function}
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    messages[-1].setdefault("tool_calls", []).append(made)


def _read_result(
    item: Mapping[str, Any], where: str, messages: list[Message], _said: list[str]
) -> None:
    result = checked(InputResult, item, where=where)
    content = read_content(result.output)
    messages.append({"role": "tool", "tool_call_id": result.call_id, "content": content})


def _skip(
    _item: Mapping[str, Any], _where: str, _messages: list[Message], _said: list[str]
) -> None:
    """Reasoning stays where it was made: it is kept with the stored rows."""


_READERS = {
    "message": _read_message,
    "function_call": _read_call,
    "function_call_output": _read_result,
    "reasoning": _skip,
}


def read_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Return tools as function schemas. Raises: Fault for a tool that runs at the provider."""
    if tools is None:
        return None
    schemas = []
    for number, tool in enumerate(tools):
        if tool.get("type") != "function":
            raise unsupported(f"tools.{number}", "only tools of type 'function' are served")
        function = checked(FunctionSpec, tool, where=f"tools.{number}")
        schemas.append({"type": "function", "function": function.model_dump(exclude_none=True)})
    return schemas
