"""The public kit's and guard's parts of the fidelity benchmark."""

from __future__ import annotations

import pytest

from agent.base.headings import split_heading
from agent.base.messages import Message
from benchmarks.fidelity import guard, kit
from benchmarks.fidelity.rates import Rate


@pytest.mark.parametrize("corpus", kit.CORPORA)
def test_cut_labels_are_gone_and_what_the_kit_asks_for_is_not(corpus: str):
    for build in kit.CORPORA[corpus]:
        session, canaries = build(3)[:2]
        text = "\n".join(turn.text for turn in kit.without_labels(session).turns)
        assert "SAFETY RULE:" in "\n".join(turn.text for turn in session.turns)
        assert not any(f"{label}:" in text for label in ("SAFETY RULE", "FACT", "GOAL STATE"))
        tokens = [token for canary in canaries for token in canary.required_tokens]
        assert all(token.lower() in text.lower() for token in tokens)


def test_our_engine_keeps_all_but_replaced_figures_in_a_budget_that_holds_everything():
    session, canaries = kit.CORPORA["generated"][0](1)
    with kit.HermesCompactor() as compactor:
        text = compactor.compact(session.turns, 1, 100_000).text
        again = compactor.compact([], 2, 100_000).text
    users = [split_heading(turn.text)[1] for turn in session.turns if turn.role == "user"]
    replaced = [token for canary in canaries for token in canary.superseded_tokens]
    missing = [said for said in users if said not in text or said not in again]
    assert [said for said in missing if not any(old in said.lower() for old in replaced)] == []
    labels = {split_heading(turn.text)[0] for turn in session.turns} - {""}
    assert [label for label in labels if f"{label}:" not in text] == []


@pytest.mark.parametrize("mode", ["none", "nonsense"])
def test_a_trial_of_the_kit_keeps_within_its_budget(mode: str):
    trial = kit.Trial("generated", labels=False, budget=0.3, seed=1, compactor=kit.OURS, mode=mode)
    found = kit.run_trial(trial)
    assert found.compliant
    assert (found.survived[1], found.resolved[1]) == (10, 3)


def test_a_value_is_resolved_when_the_latest_stands_without_the_one_it_replaced():
    canary = next(c for c in kit.CORPORA["random"][0](1)[1] if c.superseded_tokens)
    latest, old = " ".join(canary.required_tokens), canary.superseded_tokens[0]
    assert kit.is_resolved(canary, latest)
    assert not kit.is_resolved(canary, f"{latest} {old}")
    assert not kit.is_resolved(canary, old)


def test_the_best_compactor_is_one_within_the_budget():
    rates = {"over": (Rate(((9, 10),)), False), "within": (Rate(((5, 10),)), True)}
    assert kit.best_of(rates) == "within"
    assert kit.best_of({"over": rates["over"]}) == ""


def test_the_guard_tells_rules_that_stayed_from_rules_that_went():
    rules = ["Never deploy on a Friday without asking Mei.", "The cap for this run is $500."]
    before: list[Message] = [{"role": "user", "content": text} for text in (*rules, "go on")]
    assert guard.verdicts(rules, before, lambda rows: rows)["preserved"] == [True, True]
    gone = guard.verdicts(rules, before, lambda rows: rows[-1:])
    assert (gone["preserved"], gone["lost"]) == ([False, False], [True, True])
