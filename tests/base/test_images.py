"""Images in a content, of every wire's shape and as data URLs inside a text."""

from __future__ import annotations

import pytest

from agent.base.images import images_apart, is_image, replace_images
from agent.base.messages import text_of

URL = "data:image/png;base64,aGVsbG8="
OTHER = "data:image/svg+xml;charset=utf-8;base64,d29ybGQ="


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def image(url: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


def test_images_of_all_wires_are_known():
    assert is_image(image(URL))
    assert is_image({"type": "input_image", "image_url": URL})
    assert is_image({"type": "image", "source": {"data": "aGVsbG8="}})
    assert not is_image(text(URL))
    assert not is_image(URL)


def test_a_text_without_images_and_parts_that_are_apart_already_stay_the_same_objects():
    plain = "no data:image here"
    assert replace_images(plain)[0] is plain
    parts = [text("look"), image(URL), "words", {"type": "file"}]
    assert images_apart(parts) is parts


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([text(URL)], [image(URL)]),
        (
            [text(f"one {URL} two ({OTHER})")],
            [text("one "), image(URL), text(" two ("), image(OTHER), text(")")],
        ),
        ([text("before"), text(f"![shot]({URL})")], None),
    ],
    ids=["nothing else", "two of them", "beside others"],
)
def test_data_urls_in_texts_become_parts_in_place(given, expected):
    wanted = expected or [text("before"), text("![shot]("), image(URL), text(")")]
    assert images_apart(given) == wanted


def test_readable_text_has_a_word_for_each_image():
    assert text_of([text(f"see {URL} there"), image(URL)]) == "see [image] there"
    assert replace_images(f"{URL} {OTHER}", "") == (" ", 2)


def test_other_parts_of_a_split_text_keep_their_keys():
    given = {"type": "text", "text": f"a {URL}", "cache_control": {"type": "ephemeral"}}
    first, second = images_apart([given])
    assert first == {**given, "text": "a "}
    assert second == image(URL)
