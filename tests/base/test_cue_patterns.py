from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.base.cue_patterns import Cues, alternatives, beginnings
from agent.base.extract_cues import _sections

SAID = Path(__file__).parent / "said"
LINES = [
    line.lower() for file in sorted(SAID.glob("*.txt")) for line in file.read_text().splitlines()
]


@pytest.mark.parametrize(
    ("pattern", "begins"),
    [
        ("never", {"ne"}),
        ("(?:do not|don[’']?t)", {"do"}),
        ("(?:a|an) x", {"a", "an"}),
        ("(?:not )?allowed", {"no", "al"}),
        ("d[’']accord", {"d"}),
        ("colou?r", {"co"}),
        ("us?e", {"u"}),
        ("x?y", set()),
        (r"\w+ only", set()),
        ("(?!a)b", set()),
        ("(?:a|[bc])", set()),
        ("(?:ab){0,3}c", set()),
    ],
)
def test_what_a_pattern_may_begin_with(pattern: str, begins: set[str]) -> None:
    assert beginnings(pattern) == begins


def test_alternatives_are_split_outside_of_groups_and_sets() -> None:
    assert alternatives(r"a|(?:b|c)|[|]\||d") == ["a", "(?:b|c)", r"[|]\|", "d"]


@pytest.mark.parametrize("language", ["en", "de", "fr", "es", "zh", "ja"])
def test_patterns_find_what_they_find_one_by_one(language: str) -> None:
    for name, patterns in _sections(language).items():
        if name != "stop":
            plain = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
            cues = Cues(patterns)
            assert [cues.search(line) for line in LINES] == [
                bool(plain.search(line)) for line in LINES
            ]
