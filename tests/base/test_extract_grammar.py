"""Ordinary forms of six languages: every rule is found, every one of them can be taken back, and
what only sounds like them is no rule."""

from __future__ import annotations

import pytest

from agent.base.extract import ExtractKind, extract
from agent.base.takeback import lays_down, takes_back
from agent.testing.builders import assistant, result, user
from hermes_state import SessionDB
from tests.base.test_extract_phrasings import LANGUAGES, kinds, said


def is_rule(text: str) -> bool:
    """Return whether a text of the user becomes a rule when there is none to take back."""
    found = kinds(text)
    taken = ExtractKind.WITHDRAWAL in found and lays_down(text)
    return ExtractKind.INSTRUCTION in found or taken


@pytest.mark.parametrize("language", LANGUAGES)
def test_orders_and_prohibitions_are_rules(language: str) -> None:
    assert [text for text in said("ordinary", language) if not is_rule(text)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_reports_errands_questions_and_the_words_of_others_are_none(language: str) -> None:
    wrong = [text for text in said("plain", language) if ExtractKind.INSTRUCTION in kinds(text)]
    assert wrong == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_rule_is_taken_back_in_ordinary_words(language: str) -> None:
    pairs = [text.split(" || ") for text in said("freed", language)]
    assert [later for rule, later in pairs if not takes_back(later, rule)] == []


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("role", ["tool", "assistant"])
def test_nobody_but_the_user_lays_anything_down(language: str, role: str) -> None:
    ruling = {ExtractKind.INSTRUCTION, ExtractKind.WITHDRAWAL, ExtractKind.RELEASE}
    texts = [*said("ordinary", language), *said("freed", language)]
    assert [text for text in texts if {e.kind for e in extract(text, role)} & ruling] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_rule_that_is_quoted_or_pasted_is_none(language: str) -> None:
    for text in said("ordinary", language):
        for foreign in (f"> {text}", f"```\n{text}\n```", f"“{text}”", f"12:04 <ann>: {text}"):
            assert not kinds(foreign) & {ExtractKind.INSTRUCTION}, foreign


@pytest.mark.parametrize("language", LANGUAGES)
def test_in_a_conversation_the_rule_is_a_pin_until_it_is_taken_back(
    language: str, store: SessionDB
) -> None:
    rule, later = next(iter(said("freed", language))).split(" || ")
    store.create_session("s", "test")
    store.append("s", [user(rule), assistant("ok"), result("c1", later), assistant(later)])
    store.extract_pending()
    assert [pin.text for pin in store.pins("s")] == [rule]
    store.append("s", [user(later)])
    store.extract_pending()
    assert [pin.text for pin in store.pins("s") if pin.text == rule] == []
