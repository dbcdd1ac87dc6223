"""Phrasings of our own in six languages: what is a rule, what is not, what takes a rule back.

The files are examples, not the measure: `benchmarks/fidelity` measures with phrasings that the
author of the extractor has not seen. A change may move single lines, never a whole share.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.base.extract import ExtractKind, extract
from agent.base.takeback import REVISED, takes_back

FOLDER = Path(__file__).parent / "said"
LANGUAGES = ("en", "de", "fr", "es", "zh", "ja")
RULING = {ExtractKind.INSTRUCTION, ExtractKind.WITHDRAWAL}


def said(name: str, language: str) -> Iterator[str]:
    """Yield the lines of one language."""
    now = ""
    for line in (FOLDER / f"{name}.txt").read_text("utf-8").splitlines():
        if line.startswith("# "):
            now = line.removeprefix("# ")
        elif line and now == language:
            yield line.replace("\\n", "\n")


def share(outcomes: Iterator[bool]) -> float:
    """Return the part that came out."""
    found = list(outcomes)
    return sum(found) / len(found)


def kinds(text: str) -> set[ExtractKind]:
    """Return what a user's text is taken for."""
    return {each.kind for each in extract(text, "user")}


@pytest.mark.parametrize("language", LANGUAGES)
def test_nine_rules_of_ten_are_instructions(language: str) -> None:
    assert share(bool(kinds(text) & RULING) for text in said("rules", language)) >= 0.9


@pytest.mark.parametrize("language", LANGUAGES)
def test_nine_of_ten_requests_and_reports_are_none(language: str) -> None:
    found = (ExtractKind.INSTRUCTION not in kinds(text) for text in said("talk", language))
    assert share(found) >= 0.9


@pytest.mark.parametrize("language", LANGUAGES)
def test_nine_of_ten_texts_of_others_give_no_instruction(language: str) -> None:
    found = (ExtractKind.INSTRUCTION not in kinds(text) for text in said("foreign", language))
    assert share(found) >= 0.9


@pytest.mark.parametrize("language", LANGUAGES)
def test_most_withdrawals_name_their_rule_and_no_other(language: str) -> None:
    pairs = [text.split(" || ") for text in said("withdrawn", language)]
    rules = [rule for rule, _later in pairs]

    def finds(rule: str, later: str) -> bool:
        scores = {each: max(takes_back(s, each) for s in later.split(". ")) for each in rules}
        return scores[rule] > 0 and scores[rule] == max(scores.values())

    assert share(finds(rule, later) for rule, later in pairs) >= 0.8


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("Look at the audit log now.", "Don't touch the audit log."),
        ("Never push to main.", "Never push to main on Fridays."),
        ("You may now go home.", "Keep answers short."),
        (
            "Le gel des mises en production est levé.",
            "No toques la copia de producción, por favor.",
        ),
        ("Please add tests for the importer again.", "Always add tests."),
    ],
)
def test_what_speaks_of_another_thing_or_agrees_takes_nothing_back(
    sentence: str, rule: str
) -> None:
    assert takes_back(sentence, rule) == 0.0


@pytest.mark.parametrize(
    ("rule", "later", "holds"),
    [
        ("Keep lines under 100 characters.", "Keep lines under 88 characters.", False),
        ("Never spend more than $205.", "Never spend more than $704!", False),
        ("Antworte in höchstens 5 Zeilen.", "Antworte in höchstens 10 Zeilen.", False),
        ("No merges after 2027-01-02.", "No merges after 2027-05-02.", False),
        ("No merges on 2027-01-02.", "No merges on 2027-05-02.", True),
        ("Never restart node 3 again.", "Never restart node 4 again.", True),
        ("Keep lines under 100 characters.", "Keep lines under 100 characters", True),
    ],
)
def test_the_same_rule_with_another_limit_takes_the_first_back(
    rule: str, later: str, holds: bool
) -> None:
    assert (takes_back(later, rule) == 0.0) is holds


@pytest.mark.parametrize(
    ("rule", "later"),
    [
        (
            "Only Ada Byron may merge to release.",
            "Merges to release need Alan Kay and nobody else.",
        ),
        ("No merge to release without Ada Byron.", "Only Alan may merge to release."),
        ("Merge to release only after Ada agreed.", "Only merge to release if Alan has agreed."),
        ("发布只能由 Ada 批准审查。", "发布只能由 Alan 批准审查。"),
        ("リリースの承認は host-1 だけが行う。", "リリースの承認は host-2 だけが行う。"),
        ("Deploy images only from host-1.", "Deploy images only from host-2."),
        ("Seule Ada peut valider un paiement.", "Un paiement, seul Alan peut le valider."),
        ("Sólo Ada puede aprobar pagos.", "Los pagos sólo puede aprobarlos Alan."),
        ("Rollen vergibt nur admin/one.", "Nur admin/two vergibt Rollen."),
    ],
)
def test_a_rule_that_leaves_it_to_another_alone_takes_the_first_back(rule: str, later: str) -> None:
    assert takes_back(later, rule) == takes_back(rule, later) == REVISED


@pytest.mark.parametrize(
    ("rule", "later"),
    [
        ("Only Ada may merge to release.", "Only Alan may merge to main, and release is Ada's."),
        ("Only Ada may merge to release.", "Alan may also merge to release, and only he."),
        ("Only Ada may merge to release.", "Never merge to release when Alan is away."),
        ("Only Ada may merge the parser.", "Only Alan may merge the importer."),
        ("Only Ada may merge parsers in Rome.", "Only Alan may merge parsers in Oslo."),
        ("Use image node-18 for builds.", "Use image node-20 for nightly builds."),
        ("Use image node-18 for builds.", "Use image node-20 for builds, too."),
        ("Show Ada the report in full.", "Show Alan the report in full."),
        ("Answer questions in Slack.", "Answer questions in Jira."),
        ("Write tests in tests/unit.", "Write tests in tests/e2e."),
        ("Only deploy Ada's branch at night.", "Only deploy Alan's branch at night."),
        ("Use node-1 only for builds.", "Use node-2 only for builds."),
        ("Never rely only on host-1 for builds.", "Never rely only on host-2 for builds."),
        ("Führe tool-x1 im Betrieb nie allein aus.", "Führe tool-x2 im Betrieb nie allein aus."),
        (
            "Ne lance jamais host-1 seul en production.",
            "Ne lance jamais host-2 seul en production.",
        ),
        ("Nunca ejecutes host-1 solo en producción.", "Nunca ejecutes host-2 solo en producción."),
        ("Run make/lint before builds.", "Run make/test before builds."),
        ("Always merge parsers with Ada.", "Always merge parsers with Alan."),
        ("Only Ada may merge parsers.", "Only Alan may merge test parsers."),
        ("Never write commit messages in German.", "Write commit messages in English."),
        ("Write commit messages in German.", "Write release notes in English."),
        ("PROD: only Ada may merge parsers.", "TEST: only Alan may merge parsers."),
    ],
)
def test_rules_that_may_both_hold_take_nothing_back(rule: str, later: str) -> None:
    assert takes_back(later, rule) == 0.0


def test_an_answer_that_refuses_a_proposal_is_no_rule() -> None:
    assert ExtractKind.INSTRUCTION not in kinds("Das kommt nicht in Frage.")
    assert ExtractKind.INSTRUCTION in kinds("Ein zweiter Cache kommt nicht in Frage.")


def test_what_somebody_else_holds_is_no_rule_when_the_user_asks_about_it() -> None:
    told = "Bob says we must never use globals."
    assert ExtractKind.INSTRUCTION in kinds(told)
    assert ExtractKind.INSTRUCTION not in kinds(f"{told} Is he right?")
    assert ExtractKind.INSTRUCTION in kinds("I say we must never use globals. Is that clear?")
