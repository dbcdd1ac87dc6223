"""The built-in engine: which rung, with what result, and what it never does."""

from __future__ import annotations

import copy
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.auxiliary_client import AuxiliaryExplicitCancellation
from agent.base.errors import (
    AuthError,
    CallCancelled,
    ModelUnavailable,
    NetworkError,
    SummaryEmpty,
    SummaryTruncated,
    UsageError,
)
from agent.base.messages import last_user_index, text_of
from agent.base.settings import CompressionSettings
from agent.compaction.attempt import reconcile
from agent.compaction.budget import budget_for, shown_tokens, total_tokens
from agent.compaction.context_compressor import ContextCompressor
from agent.compaction.cooldown import STALL_INTERRUPTED_FAILURE_CLASS
from agent.compaction.fence import CompressionCommitFence
from agent.compaction.verify import judge_candidate
from agent.sessions.records import PassKind
from agent.testing.builders import assistant, conversation, turn, user
from agent.testing.clock import FakeClock
from agent.testing.summaries import GOOD_SUMMARY, ScriptedSummaries
from tests.compaction.texts import POOR
from tests.compaction.views import attempt, call_sides, stored, summary_row, views

BUDGET = budget_for(16_000, 2_000, 500)
TALK = "We looked at the reports of the last week and compared them line by line. " * 25


def talk(turns: int) -> list:
    """Return a stored view without tool results: nothing to mask."""
    return stored([row for n in range(turns) for row in turn(f"request {n}", f"{n} {TALK}")])


def tool_talk(turns: int) -> list:
    """Return a stored view that is mostly old tool results."""
    rounds = [{"read_file": f"line of the file\n{TALK}"}]
    return stored([row for n in range(turns) for row in turn(f"request {n}", rounds=rounds)])


@pytest.fixture
def compressor():
    return ContextCompressor()


def new_rows(candidate: list) -> list:
    return [row for row in candidate if "_ref" not in row]


# -- the ladder -----------------------------------------------------------------------------------
def test_masking_is_enough_when_it_reaches_the_target(compressor):
    view = tool_talk(20)
    client = ScriptedSummaries()
    candidate = compressor.compress(view, attempt=attempt(client, BUDGET))
    assert (candidate.kind, candidate.strategy, client.asked) == (PassKind.MASK, ("mask",), [])
    assert shown_tokens(view, BUDGET) > BUDGET.target_tokens >= shown_tokens(candidate, BUDGET)
    changes = reconcile(view, candidate)
    assert (changes.covered, changes.new_row) == ((), None)
    assert judge_candidate(view, changes, BUDGET) == ""


def test_a_view_below_the_target_goes_on_to_the_summary_though_it_could_be_masked(compressor):
    view = tool_talk(8)
    assert shown_tokens(view, BUDGET) <= BUDGET.target_tokens
    candidate = compressor.compress(view, attempt=attempt(ScriptedSummaries(), BUDGET))
    assert candidate.kind is PassKind.SUMMARY


def test_a_summary_stands_where_the_last_covered_row_stood(compressor):
    view = talk(24)
    client = ScriptedSummaries()
    candidate = compressor.compress(view, attempt=attempt(client, BUDGET))
    assert (candidate.kind, candidate.strategy) == (PassKind.SUMMARY, ("summary",))
    assert (candidate.failure_class, candidate.chunks) == ("", len(client.asked))
    assert (candidate.model, candidate.route) == ("scripted", "scripted summaries")
    assert candidate.cost == pytest.approx(0.001 * len(client.asked))
    [row] = new_rows(candidate)
    assert (row["role"], row["content"], row["_kind"]) == ("user", GOOD_SUMMARY, "summary")
    before = candidate[candidate.index(row) - 1]["_ref"]
    after = candidate[candidate.index(row) + 1]["_ref"]
    changes = reconcile(view, candidate)
    assert before < changes.covered[-1] < after
    assert all(view[ref]["role"] == "assistant" for ref in changes.covered)
    assert shown_tokens(candidate, BUDGET) <= BUDGET.target_tokens


def test_an_earlier_summary_goes_into_the_new_one_and_leaves(compressor):
    view = stored([summary_row("## Values\nPort 5433."), *talk(10)])
    client = ScriptedSummaries()
    candidate = compressor.compress(view, attempt=attempt(client, BUDGET))
    assert [row["_kind"] for row in candidate if row.get("_kind")] == ["summary"]
    assert 0 in reconcile(view, candidate).covered
    assert "<notes>\n## Values\nPort 5433.\n</notes>" in client.asked[0].prompt


def test_the_summariser_reads_what_was_covered_and_not_what_was_masked(compressor):
    view = tool_talk(8)
    client = ScriptedSummaries()
    candidate = compressor.compress(view, attempt=attempt(client, BUDGET))
    covered = reconcile(view, candidate).covered
    assert client.asked[0].prompt.count("line of the file\nWe looked") == sum(
        view[ref]["role"] == "tool" for ref in covered
    )


@pytest.mark.parametrize(
    "failure",
    [AuthError("401"), NetworkError("reset"), SummaryTruncated("cut"), SummaryEmpty("none")],
    ids=lambda failure: type(failure).__name__,
)
def test_a_failed_summary_leaves_a_view_that_fits_untouched(compressor, failure):
    with pytest.raises(type(failure)):
        compressor.compress(talk(24), attempt=attempt(ScriptedSummaries([failure]), BUDGET))


@pytest.mark.parametrize(
    ("failure", "word"),
    [
        (AuthError("401"), "summary_auth_failure"),
        (NetworkError("reset"), "summary_network_failure"),
        (SummaryTruncated("cut"), "summary_truncated_failure"),
        (SummaryEmpty("none"), "summary_empty_content_failure"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_digest_stands_in_when_the_view_no_longer_fits(compressor, failure, word):
    view = talk(40)
    assert not BUDGET.fits(shown_tokens(view, BUDGET))
    candidate = compressor.compress(view, attempt=attempt(ScriptedSummaries([failure]), BUDGET))
    assert (candidate.kind, candidate.failure_class) == (PassKind.MECHANICAL, word)
    assert candidate.strategy == ("summary", "mechanical")
    [row] = new_rows(candidate)
    assert row["_kind"] == "mechanical"
    assert row["content"].startswith("Digest made without a model")
    assert BUDGET.under_trigger(shown_tokens(candidate, BUDGET))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ok", "too_short"),
        ("   ", "empty"),
        (POOR["fluent and going round"], "repeating"),
        (POOR["the prompt and then the material"], "echoes_prompt"),
        ("\n".join(f"point {n} of the {n * 7}th kind, noted" for n in range(900)), "too_long"),
    ],
    ids=lambda value: value[:16],
)
def test_a_refused_text_gives_way_to_the_digest_in_the_same_attempt(compressor, text, reason):
    client = ScriptedSummaries([text], window_tokens=64_000)
    candidate = compressor.compress(talk(24), attempt=attempt(client, BUDGET))
    assert (candidate.kind, candidate.failure_class) == (
        PassKind.MECHANICAL,
        f"summary_refused:{reason}",
    )
    assert len(client.asked) == 1
    assert candidate.cost == 0.001


def test_a_summary_larger_than_what_it_covers_gives_way_to_the_digest(compressor):
    view = stored([*turn("a", "b " * 60), *turn("c", "d " * 60), *turn("e", "f " * 60)])
    candidate = compressor.compress(
        view, attempt=attempt(ScriptedSummaries(), dataclasses.replace(BUDGET, tail_tokens=10))
    )
    assert candidate.failure_class == "summary_refused:would_grow"
    assert total_tokens(candidate) < total_tokens(view)


def test_without_a_model_the_digest_is_made_and_no_one_asked(compressor):
    client = ScriptedSummaries()
    candidate = compressor.compress(talk(40), attempt=attempt(client, BUDGET, model_free=True))
    assert (candidate.kind, candidate.strategy) == (PassKind.MECHANICAL, ("mechanical",))
    assert (candidate.failure_class, candidate.cost, client.asked) == ("blocked:cooldown", None, [])


def test_a_digest_that_would_not_help_changes_nothing(compressor):
    tight = dataclasses.replace(BUDGET, trigger_tokens=700)
    view = talk(24)
    candidate = compressor.compress(view, attempt=attempt(None, tight, model_free=True))
    assert reconcile(view, candidate).nothing is True


def test_no_summary_model_is_a_failure_with_advice(compressor):
    with pytest.raises(ModelUnavailable, match="set auxiliary.compression.model"):
        compressor.compress(talk(24), attempt=attempt(None, BUDGET))


@pytest.mark.parametrize("messages", [[], [user("hi")], conversation(1)], ids=len)
def test_a_view_with_nothing_to_give_up_comes_back_unchanged(compressor, messages):
    view = stored(messages)
    client = ScriptedSummaries()
    candidate = compressor.compress(view, attempt=attempt(client, BUDGET))
    assert list(candidate) == view
    assert (reconcile(view, candidate).nothing, client.asked) == (True, [])


@pytest.mark.parametrize("stop", [AuxiliaryExplicitCancellation(), CallCancelled("stopped")])
def test_a_stop_ends_the_attempt_without_another_rung(compressor, stop):
    with pytest.raises(type(stop)):
        compressor.compress(talk(40), attempt=attempt(ScriptedSummaries([stop]), BUDGET))


def test_a_fence_that_was_cancelled_before_stops_the_first_call(compressor):
    fence = CompressionCommitFence()
    fence.cancel_before_commit()
    client = ScriptedSummaries()
    with pytest.raises(CallCancelled):
        compressor.compress(talk(40), attempt=attempt(client, BUDGET, fence=fence))
    assert client.asked == []


def test_a_summary_given_by_hand_is_used_as_it_is(compressor, monkeypatch):
    text = GOOD_SUMMARY.replace("5433", "6000")
    monkeypatch.setattr(compressor, "_generate_summary", lambda *_args, **_kwargs: text)
    candidate = compressor.compress(talk(24), attempt=attempt(None, BUDGET))
    assert [row["content"] for row in new_rows(candidate)] == [text]


def test_a_focus_reaches_the_summariser_redacted(compressor):
    client = ScriptedSummaries()
    focus = "the key sk-ant-api03-Zm9vYmFy_quux-1234567890"
    compressor.compress(talk(24), focus_topic=focus, attempt=attempt(client, BUDGET))
    assert "the key [REDACTED:anthropic_key]" in client.asked[0].prompt


def test_secrets_in_a_summary_are_not_stored(compressor):
    secret = "ghp_0123456789abcdefABCDEF0123456789abcd"
    client = ScriptedSummaries([f"{GOOD_SUMMARY}\nToken: {secret}"])
    candidate = compressor.compress(talk(24), attempt=attempt(client, BUDGET))
    [row] = new_rows(candidate)
    assert row["content"] == f"{GOOD_SUMMARY}\nToken: [REDACTED:github_token]"


def test_without_an_attempt_it_works_alone_and_without_a_model():
    compressor = ContextCompressor()
    compressor.update_window(16_000, 2_000)
    view = [row for n in range(40) for row in turn(f"request {n}", TALK)]
    candidate = compressor.compress(view)
    assert candidate.kind is PassKind.MECHANICAL
    assert total_tokens(candidate) < total_tokens(view) / 2


def test_the_messages_it_is_given_stay_as_they_are(compressor):
    view = tool_talk(30)
    before = copy.deepcopy(view)
    compressor.compress(view, attempt=attempt(ScriptedSummaries(), BUDGET))
    assert view == before


@given(views(max_turns=9), st.integers(4_096, 12_000), st.booleans(), st.sampled_from(["ok", None]))
def test_whatever_comes_out_may_be_committed_or_changes_nothing(view, window, model_free, text):
    budget = budget_for(window, 512, 200)
    client = ScriptedSummaries([text or GOOD_SUMMARY])
    candidate = ContextCompressor().compress(
        view, attempt=attempt(client, budget, model_free=model_free)
    )
    changes = reconcile(view, candidate)
    assert changes.nothing or judge_candidate(view, changes, budget) == ""
    assert all(len(side) == 1 for side, _id in call_sides(view, set(changes.kept)))
    newest = last_user_index(view)
    if newest is not None:
        assert view[newest] in candidate
    if changes.new_row is not None:
        assert changes.new_row == new_rows(candidate)[0]
        assert text_of(changes.new_row["content"]).strip()


# -- when -----------------------------------------------------------------------------------------
def test_the_threshold_follows_the_window_until_it_is_set_by_hand(compressor):
    compressor.update_window(100_000, 4_000)
    assert (compressor.threshold_tokens, compressor.tail_token_budget) == (72_000, 19_200)
    assert compressor.should_compress(72_000) is True
    assert compressor.should_compress(71_999) is False
    compressor.threshold_tokens = 1_000
    compressor.tail_token_budget = 10
    compressor.update_window(200_000, 4_000)
    assert (compressor.threshold_tokens, compressor.tail_token_budget) == (1_000, 10)
    assert compressor.should_compress(1_000) is True


def test_settings_move_threshold_and_target():
    compressor = ContextCompressor(CompressionSettings(threshold=0.4))
    compressor.update_window(100_000, 0)
    assert compressor.threshold_tokens == 40_000


def test_a_tail_set_by_hand_survives_a_rebind_and_is_obeyed(compressor, store):
    view = talk(24)
    plain = compressor.compress(view, attempt=attempt(ScriptedSummaries(), BUDGET))
    compressor.tail_token_budget = 10
    for session in ("parent", "child"):
        store.create_session(session, source="test")
        compressor.bind(store, session)
    short = compressor.compress(view, attempt=attempt(ScriptedSummaries(), BUDGET))
    assert len(short) < len(plain)
    assert short[-2:] == view[-2:]


def test_a_brake_stops_automatic_passes_until_it_ends(store):
    clock = FakeClock()
    compressor = ContextCompressor(clock=clock)
    compressor.threshold_tokens = 1_000
    store.create_session("s", source="test")
    compressor.bind(store, "s")
    assert compressor.should_compress(5_000) is True
    compressor._record_compression_failure_cooldown(60, f"{STALL_INTERRUPTED_FAILURE_CLASS}:msgs=2")
    assert compressor.should_compress(5_000) is False
    running = store.get_compression_failure_cooldown("s")
    assert running["error"] == "stall_interrupted:msgs=2"
    clock.advance(61)
    assert compressor.should_compress(5_000) is True


def test_a_longer_brake_stays_when_a_shorter_one_is_recorded(store):
    clock = FakeClock()
    compressor = ContextCompressor(clock=clock)
    store.create_session("s", source="test")
    compressor.bind(store, "s")
    compressor._record_compression_failure_cooldown(900, "first")
    compressor._record_compression_failure_cooldown(60, "second")
    running = store.get_compression_failure_cooldown("s")
    assert (running["cooldown_until"], running["error"]) == (clock.now() + 900, "second")


def test_a_session_that_is_not_stored_yet_has_no_brake(store, compressor):
    compressor.bind(store, "not yet")
    compressor.threshold_tokens = 10
    assert compressor.should_compress(10) is True


def test_recording_a_brake_needs_a_session(compressor):
    with pytest.raises(UsageError, match="call bind first"):
        compressor._record_compression_failure_cooldown(60, "x")


def test_a_long_request_alone_is_never_cut_away(compressor):
    view = stored([user("word " * 30_000), assistant("noted")])
    candidate = compressor.compress(view, attempt=attempt(ScriptedSummaries(), BUDGET))
    assert candidate[0] == view[0]
