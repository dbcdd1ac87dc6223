"""What may take a rule back without surely doing so, and what speaks of something else."""

from __future__ import annotations

import pytest

from agent.base.takeback import may_take_back

RULE = "Don't touch the audit log."


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ("Legal went through the audit log, go ahead.", RULE),
        ("The audit log is fine with everybody by now.", RULE),
        ("Suchindex und Tabelle wurden gesichert.", "Kein Eingriff in Suchindex und Tabelle."),
        ("La table des clients est sauvegardée.", "Ne touche pas à la table des clients."),
        ("対帳テーブルの作業は終わりました。", "対帳テーブルは触らないでください。"),
    ],
)
def test_what_is_about_a_rule_may_take_it_back(said: str, rule: str) -> None:
    assert may_take_back(said, rule) > 0


@pytest.mark.parametrize(
    "said",
    [
        "The importer is done.",
        "The log says something about a lock that is gone by the time I look.",
        "The log of the importer is fine without dates.",
        "Never rename the audit log and its columns.",
    ],
)
def test_errands_other_rules_and_other_things_leave_a_rule_alone(said: str) -> None:
    assert may_take_back(said, RULE) == 0.0
