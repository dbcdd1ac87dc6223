"""Which of two values is current."""

from __future__ import annotations

import pytest

from agent.base.extract import extract
from agent.compaction.values import nearest_later, replaced_values, shape_of
from agent.sessions.records import StoredExtract

SHAPES = {
    "5432": "9",
    "10.0.0.1": "9.9.9.9",
    "20 MB": "9 mb",
    "a.b.test": "host",
    "https://a.test/v2": "link",
    "61860a0": "id x",
    "f00dbabe": "id x",
    "OPS-4121": "id x-x",
}


def said(*texts: str) -> list[StoredExtract]:
    """Return the extracts of user rows, newest row first, as the store gives them."""
    rows = [
        [
            StoredExtract(seq, seq, "user", each.kind, each.subject, each.value)
            for each in extract(text, "user")
        ]
        for seq, text in enumerate(texts, start=1)
    ]
    return [each for row in reversed(rows) for each in row]


def replaced(*texts: str) -> dict[str, str]:
    """Return old value: new value."""
    extracts = said(*texts)
    return {
        extracts[old].value: extracts[new].value for old, new in replaced_values(extracts).items()
    }


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("The API listens on port 8080.", "The API moved to port 9090.", {"8080": "9090"}),
        ("Retry limit is 5 tries.", "Make it 8 tries for the retry limit.", {"5 tries": "8 tries"}),
        ("Launch is on 2027-01-05.", "The launch slipped to 2027-02-09.", None),
        ("Der Dienst läuft auf Port 7000.", "Der Dienst läuft jetzt auf Port 7001.", None),
        ("The hotfix is commit 61860a0.", "The hotfix is now commit 2e59892.", None),
        ("The hotfix is commit 6186050.", "The hotfix is commit 2e59892.", {"6186050": "2e59892"}),
        (
            "Staging API: https://one.example/v2",
            "The staging API is https://two.example/v2",
            {"https://one.example/v2": "https://two.example/v2"},
        ),
        (
            "Staging API lives at https://one.example/v2",
            "The staging API base URL is https://two.example/v2",
            {"https://one.example/v2": "https://two.example/v2"},
        ),
        ("缓存端口是 6001。", "缓存端口改成 6002。", None),
        ("キャッシュのポートは6001です。", "キャッシュのポートを6002に変更しました。", None),
    ],
)
def test_a_change_replaces_the_value_of_its_subject(
    old: str, new: str, expected: dict[str, str] | None
) -> None:
    found = replaced(old, new)
    assert len(found) == 1
    assert expected is None or found == expected


@pytest.mark.parametrize(
    "texts",
    [
        ("The primary listens on 5432 and the replica on 5433.",),
        ("Order 8812 was shipped.", "Order 8813 was refunded."),
        ("The blue host is 10.0.0.1.", "The green cluster answers on 10.0.0.2."),
        ("The limit is 20 MB.", "The release is on 2027-01-05 now."),
        ("Look at src/jobs/queue_1.py first.", "Look at src/jobs/queue_2.py first."),
        ("The login fix is 61860a0.", "The export fix is 2e59892."),
        ("The blue rack fan speed is 4400.", "The green rack fan speed is 4500."),
    ],
)
def test_look_alikes_replace_nothing(texts: tuple[str, ...]) -> None:
    assert replaced(*texts) == {}


def test_a_chain_of_changes_leads_to_the_newest() -> None:
    found = replaced(
        "The API port is 8001.", "The API port is now 8002.", "The API port is now 8003."
    )
    assert found == {"8001": "8002", "8002": "8003"}


def test_what_comes_nearest_later_shares_a_word_and_the_sort() -> None:
    extracts = said(
        "The upload limit is 20 MB.",
        "Files over 30 MB break the upload form.",
        "The limit for uploads by guests, I hear, went to 50 MB.",
        "The upload ran for 40 minutes.",
    )
    by_value = {each.value: place for place, each in enumerate(extracts)}
    assert nearest_later(extracts, [by_value["20 MB"]]) == {by_value["50 MB"]}
    assert nearest_later(extracts, [by_value["40 minutes"]]) == set()
    assert nearest_later(extracts, []) == set()


def test_values_of_one_sort_have_one_shape() -> None:
    assert {value: shape_of(value) for value in SHAPES} == SHAPES
