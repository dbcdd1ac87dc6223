"""Which rows a section came from."""

from __future__ import annotations

from agent.compaction.cite import cite_sections
from agent.sessions.records import StoredExtract

EXTRACTS = [
    StoredExtract(7, 7, "tool", "identifier", "", "src/parse.py"),
    StoredExtract(4, 4, "user", "value", "port", "5432"),
    StoredExtract(99, 99, "tool", "identifier", "", "src/other.py"),
]


def test_sections_cite_rows_they_name_and_rows_whose_identifiers_they_repeat() -> None:
    text = "## Done\nSee [3] and [5-6].\n## Values\nPort 5432, src/parse.py.\n## Rest\nTalk."
    cited, sections = cite_sections(text, [3, 4, 5, 6, 7], EXTRACTS)
    assert cited == (
        "## Done\nSee [3] and [5-6].\n## Values [4,7]\nPort 5432, src/parse.py.\n## Rest\nTalk."
    )
    assert sections == [
        {"heading": "Done", "rows": "3,5-6"},
        {"heading": "Values", "rows": "4,7"},
        {"heading": "Rest", "rows": "3-7"},
    ]


def test_what_an_earlier_pass_cited_stays_cited() -> None:
    cited, sections = cite_sections("## Done [1-2]\nsrc/parse.py", [4, 7], EXTRACTS)
    assert cited == "## Done [1-2,7]\nsrc/parse.py"
    assert sections == [{"heading": "Done", "rows": "1-2,7"}]


def test_rows_that_were_not_covered_are_never_cited() -> None:
    cited, sections = cite_sections("## Done\nsrc/other.py [400]", [4, 7], EXTRACTS)
    assert (cited, sections) == (
        "## Done\nsrc/other.py [400]",
        [{"heading": "Done", "rows": "4,7"}],
    )


def test_notes_without_headings_cite_everything_on_the_receipt() -> None:
    assert cite_sections("Just notes.", [4, 5, 9], EXTRACTS) == (
        "Just notes.",
        [{"heading": "", "rows": "4-5,9"}],
    )


def test_many_rows_become_one_range() -> None:
    covered = list(range(1, 200, 3))
    _cited, [section] = cite_sections("## Done\nTalk.", covered, [])
    assert section["rows"] == "1-199"
