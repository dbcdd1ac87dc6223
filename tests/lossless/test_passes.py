"""Five passes with a summariser that returns nonsense: nothing that stands may be lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.base.messages import text_of, wire_message
from agent.compaction.budget import total_tokens
from agent.sessions.records import PassKind, PassStatus
from hermes_state import SessionDB
from run_agent import AIAgent
from tests.lossless.harness import (
    RULES,
    identifiers,
    open_agent,
    requests_of,
    shown,
    work,
)

PASSES = 5


def run_passes(agent: AIAgent, rng: random.Random, rules: list[str]) -> None:
    """Talk, work and compact `PASSES` times, checking every request on the way."""
    store, number, given_rules = agent.store, 0, list[str]()
    for round_number in range(PASSES):
        for rule in rules[round_number::PASSES]:
            agent.chat(rule)
            given_rules.append(rule)
        for _ in range(6):
            number += 1
            store.append("s", work(rng, number))
        before = store.view("s").messages
        record = agent.compress()
        assert record.status is PassStatus.COMMITTED, record
        assert total_tokens(store.view("s").messages) < total_tokens(before)
        request = f"Newest request {round_number}: explain part {rng.randrange(10**6)}."
        agent.chat(request)
        said = shown(requests_of(agent)[-1])
        assert request in said
        for rule in given_rules:
            assert rule in said


@given(seed=st.integers(0, 10**6), rules=st.lists(st.sampled_from(RULES), unique=True))
@settings(max_examples=4)
def test_pins_and_the_newest_request_are_in_every_request(
    tmp_path_factory: pytest.TempPathFactory, seed: int, rules: list[str]
) -> None:
    agent = open_agent(tmp_path_factory.mktemp("store") / "state.db")
    try:
        run_passes(agent, random.Random(seed), rules)
    finally:
        agent.store.close()


def test_every_identifier_is_in_view_or_found_by_one_recall(tmp_path: Path) -> None:
    agent = open_agent(tmp_path / "state.db")
    run_passes(agent, random.Random(4), list(RULES))
    store = agent.store
    said = shown(requests_of(agent)[-1])
    rows = store.accepted_rows("s", 1, store.head("s").watermark)
    for value in identifiers(rows):
        if value in said:
            continue
        found = agent.recall(query=f'"{value}"')
        assert any(value in text_of(row["content"]) for row in found), value
    store.close()


def test_every_row_stays_readable_byte_exact_also_after_a_restart(tmp_path: Path) -> None:
    agent = open_agent(tmp_path / "state.db")
    store, rng, accepted = agent.store, random.Random(7), []
    agent.chat("Hello.")
    for number in range(PASSES):
        rows = [row for at in range(6) for row in work(rng, number * 6 + at)]
        accepted += [(row["_seq"], wire_message(row)) for row in store.append("s", rows)]
        assert agent.compress().status is PassStatus.COMMITTED
    store.close()
    again = SessionDB(tmp_path / "state.db")
    read = {row["_seq"]: wire_message(row) for row in again.accepted_rows("s", 1, 10_000)}
    assert [(seq, read[seq]) for seq, _row in accepted] == accepted
    again.close()


def test_the_receipt_says_what_was_kept_restored_dropped_and_cited(tmp_path: Path) -> None:
    agent = open_agent(tmp_path / "state.db")
    agent.chat("Never rename a public function without telling me.")
    rng = random.Random(1)
    for number in range(8):
        agent.store.append("s", work(rng, number))
    record = agent.compress()
    assert record.kind is PassKind.SUMMARY
    receipt = record.receipt
    assert 0 < receipt["coverage"] <= 1
    assert receipt["identifiers_restored"] > 0
    counted = sum(receipt[f"identifiers_{what}"] for what in ("kept", "restored", "dropped"))
    covered = {row["_row_id"] for row in agent.store.pass_rows(record.id)[0]}
    facts = agent.store.extracts("s", kinds=("value", "identifier"))
    assert counted >= len({each.value for each in facts if each.row_id in covered})
    assert [section["heading"] for section in receipt["sections"]] == [
        "Current request and state",
        "Done",
        "Decisions",
        "Open questions",
    ]
    [made] = agent.store.pass_rows(record.id)[1]
    assert "## Word for word" in made["content"]
    agent.store.close()


def test_a_replaced_value_is_shown_with_what_it_replaced(tmp_path: Path) -> None:
    agent = open_agent(tmp_path / "state.db")
    agent.chat("The test database listens on port 5432." + " Filler words follow here." * 400)
    agent.chat("Use port 5433 for the test database now." + " Filler words follow here." * 400)
    rng = random.Random(2)
    for number in range(8):
        agent.store.append("s", work(rng, number))
    agent.compress()
    agent.chat("Which port is it?")
    assert "5433 (was 5432)" in shown(requests_of(agent)[-1])
    agent.store.close()


def test_a_withdrawn_rule_is_not_shown_as_standing(tmp_path: Path) -> None:
    agent = open_agent(tmp_path / "state.db")
    agent.chat("Don't touch the audit log until I say so.")
    rng = random.Random(3)
    agent.store.append("s", [row for number in range(6) for row in work(rng, number)])
    agent.compress()
    agent.chat("Which files are left?")
    assert "- Don't touch the audit log until I say so. [1]" in shown(requests_of(agent)[-1])
    agent.chat("You may now touch the audit log.")
    agent.chat("And what is next?")
    assert "- Don't touch the audit log" not in shown(requests_of(agent)[-1])
    agent.store.close()
