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
        ("never", {"neve"}),
        ("nev", {"nev"}),
        (r"no\b", {"no "}),
        (r"no\s+more", {"no "}),
        (r"no\s*more", {"no"}),
        ("(?:do not|don[’']?t)", {"do ", "don ", "dont"}),
        ("(?:a|an) x", {"a ", "an "}),
        ("(?:not )?allowed", {"not ", "allo"}),
        ("(?:no|not)+x", {"no", "not"}),
        ("d[’']accord", {"d "}),
        ("colou?r", {"colo"}),
        ("us?e", {"use", "ue"}),
        ("x?y", {"xy", "y"}),
        ("n[oe]x", {"nox", "nex"}),
        ("n[a-z]x", {"n"}),
        (r"\w+ only", {""}),
        ("(?!a)b", {"b"}),
        ("(?<!a)bcde(?!f)g", {"bcde"}),
        ("(?:a|[bc])", {"a", "b", "c"}),
        ("(?:ab){0,3}c", {""}),
        (r"\b(?:on|off) it", {"on ", "off "}),
    ],
)
def test_what_a_pattern_may_begin_with(pattern: str, begins: set[str]) -> None:
    assert beginnings(pattern) == begins


def test_alternatives_are_split_outside_of_groups_and_sets() -> None:
    assert alternatives(r"a|(?:b|c)|[|]\||d") == ["a", "(?:b|c)", r"[|]\|", "d"]


@pytest.mark.parametrize("language", ["en", "de", "fr", "es", "zh", "ja"])
def test_patterns_find_what_they_find_one_by_one(language: str) -> None:
    sections = {name: each for name, each in _sections(language).items() if name != "stop"}
    kinds = {name: 1 << place for place, name in enumerate(sections)}
    plain = {
        kinds[name]: re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
        for name, patterns in sections.items()
    }
    cues = Cues((kinds[name], each) for name, lines in sections.items() for each in lines)
    assert [cues.find(line) for line in LINES] == [
        sum(kind for kind, pattern in plain.items() if pattern.search(line)) for line in LINES
    ]


def test_patterns_of_clauses_count_only_where_a_clause_begins() -> None:
    cues = Cues([(1, r"\bno\b"), (2, r"\bno\b")], 2, lambda _text, at: at == 0)
    assert [cues.find(text) for text in ("no", "so no", "yes")] == [3, 1, 0]
