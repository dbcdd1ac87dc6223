"""Parts of any wire's shape, and plain strings, go out on each wire as it takes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.providers.parts import plain_parts
from agent.providers.protocol import CallWatch, Limits, ModelRequest
from agent.testing.builders import assistant, call, image, result, user
from agent.testing.stub_server import StubModelServer
from tests.providers.conftest import Wire, openings
from tests.providers.wires import WIRES, WireCase


@pytest.fixture(params=list(WIRES.values()), ids=list(WIRES))
def case(request: pytest.FixtureRequest) -> WireCase:
    """The wire under test."""
    found: WireCase = request.param
    return found


@pytest.fixture
def wire(case: WireCase) -> Iterator[Wire]:
    yield from openings(case.opens)


PNG = "data:image/png;base64,aGVsbG8="
PARTS = {
    "strings": ["see", "this"],
    "texts of the Responses API": [{"type": "input_text", "text": "see"}],
    "its images": ["see", {"type": "input_image", "image_url": PNG, "detail": "low"}],
    "an image that an endpoint keeps": ["see", {"type": "input_image", "file_id": "file-1"}],
    "images of the Messages API": [
        "see",
        {"type": "image", "source": {"type": "url", "url": "https://host/a.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
    ],
    "an address alone": ["see", {"image_url": PNG}, {"type": "image_url", "image_url": PNG}],
    "nothing that can be shown": ["see", None, 3, {}, {"type": "text"}, {"type": "image"}],
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())
def test_parts_of_any_wire_are_never_refused(
    wire: Wire, case: WireCase, stub: StubModelServer, parts: list[Any]
) -> None:
    made = call("look", "{}", call_id="c1")
    shown = {**result(made, ""), "content": parts}
    messages = [user(parts), assistant("", made), shown, user("and?")]
    request = ModelRequest(messages=messages, max_tokens=50)
    wire(stub.base_url).complete(request, limits=Limits(), watch=CallWatch())
    [sent] = stub.requests
    assert sent.refusal == ""
    assert "see" in dict(case.sent(sent.body)[:1])["user"]


def test_parts_of_chat_completions_stay_as_they_are() -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}
    parts = [{"type": "text", "text": "see"}, image(), sound]
    assert plain_parts(parts) is parts


def test_an_image_of_another_wire_keeps_its_address_and_detail() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
    given = {"type": "input_image", "image_url": PNG, "detail": "low"}
    assert plain_parts([given, {"type": "image", "source": source}]) == [
        {"type": "image_url", "image_url": {"detail": "low", "url": PNG}},
        {"type": "image_url", "image_url": {"url": PNG}},
    ]
