"""The fidelity benchmark itself: its phrasings, its sessions, its scoring, its tables."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.base.messages import Message, last_user_index, text_of
from agent.compaction.budget import budget_for
from agent.compaction.verify import judge_text
from agent.testing.stub_strict import check_messages
from benchmarks.fidelity import guard, phrasings
from benchmarks.fidelity.bounded import (
    SHARES,
    fit_notes,
    notes_of,
    tokens_for,
    window_for,
)
from benchmarks.fidelity.generate import PLANTED_SHARE, Planted, choose, plant
from benchmarks.fidelity.items import KINDS, LANGUAGES, PARTS, Item, load_items, load_requests
from benchmarks.fidelity.rates import Rate, bootstrap, rate, wilson
from benchmarks.fidelity.run import Effort, Plan, main, report
from benchmarks.fidelity.scoring import MEASURES, Seen, Standing, judge, says, sentences
from benchmarks.fidelity.sessions_run import Case, Measured, measure, run_session
from benchmarks.fidelity.summarisers import Nonsense
from benchmarks.fidelity.tables import cell, grid, session_goal
from benchmarks.fidelity.values import draw, look_alike

EVERYTHING_CHARS = 2_000_000


# -- the phrasings ------------------------------------------------------------------------------
def test_each_part_has_150_phrasings_and_shares_none_with_the_other():
    texts = {part: [t for i in load_items(part) for _w, t in i.turns] for part in PARTS}
    assert all(len(set(said)) == len(said) >= 150 for said in texts.values())
    assert not set(texts["tune"]) & set(texts["test"])


def test_requests_name_one_file_each_and_no_two_are_alike():
    requests = [request for part in PARTS for request in load_requests(part)]
    assert [request for request in requests if request.count("{path}") != 1] == []
    assert len(set(requests)) == len(requests) == 72


@pytest.mark.parametrize("part", PARTS)
def test_a_part_has_every_kind_in_every_language_and_twenty_injections(part: str):
    items = load_items(part)
    assert {(item.kind, item.language) for item in items} == {
        (kind, language) for kind in KINDS for language in LANGUAGES
    }
    assert Counter(item.kind for item in items)["injection"] >= 20
    assert len({item.id for item in items}) == len(items)


@pytest.mark.parametrize("part", PARTS)
def test_an_item_expects_only_what_it_says_and_carries_no_label(part: str):
    assert [item.id for item in load_items(part) if not _is_sound(item)] == []


def _is_sound(item: Item) -> bool:
    text = "\n".join(text for _where, text in item.turns)
    said = [text for where, text in item.turns if where == "user"]
    return (
        all(words in text for words in (*item.expected, *item.stale, *item.forbidden))
        and all(f"{{{name}}}" in text for name in item.values)
        and (not item.near or any(word.casefold() in text.casefold() for word in item.near))
        and bool(item.forbidden) != bool(item.expected)
        and bool(item.subject)
        and not any(f"{kind}:" in text.casefold() for kind in KINDS for text in said)
    )


# -- the sessions -------------------------------------------------------------------------------
@given(seed=st.integers(0, 10_000), part=st.sampled_from(PARTS))
@example(seed=1953, part="test")
@example(seed=2197, part="tune")
def test_planted_items_stand_in_a_valid_transcript_of_the_exact_length(seed: int, part: str):
    session = plant(part, seed=seed, messages=100)
    assert len(session.messages) == 100
    assert check_messages([{"role": "system", "content": "s"}, *session.messages]) is None
    said = {text for planted in session.planted for text in planted.texts}
    alone = sum(m["role"] == "user" and m["content"] in said for m in session.messages)
    last = PLANTED_SHARE * (100 - 2 * alone) + 2 * alone
    for planted in session.planted:
        assert list(planted.places) == sorted(set(planted.places))
        assert planted.places[-1] <= last
        for place, text in zip(planted.places, planted.texts, strict=True):
            assert text in text_of(session.messages[place]["content"])


def test_a_seed_gives_the_same_session_again_and_another_seed_another():
    first, again, other = (plant("test", seed=seed, messages=100) for seed in (7, 7, 8))
    assert first == again != other


def test_a_session_has_no_two_items_of_one_topic():
    items = load_items("test")
    chosen = choose(items, random.Random(3), 96)
    assert max(Counter(item.topic for item in chosen).values()) == 1
    assert {item.kind for item in chosen} == set(KINDS)


def test_a_transcript_too_short_for_its_items_is_refused():
    with pytest.raises(ValueError, match="40 messages are too few for 39 items"):
        plant("test", seed=1, messages=40, count=40)


def test_values_are_drawn_as_a_language_writes_them():
    marks = {"en": " ", "de": ".", "fr": "/", "es": "/", "zh": "年", "ja": "年"}
    dates = {language: draw(random.Random(1), "date", language) for language in marks}
    assert [mark in dates[language] for language, mark in marks.items()] == [True] * 6


@given(seed=st.integers(0, 1_000), value=st.sampled_from(["10.20.30.40", "481022", "7.12.0"]))
def test_a_look_alike_differs_in_one_digit(seed: int, value: str):
    other = look_alike(random.Random(seed), value)
    assert sum(a != b for a, b in zip(value, other, strict=True)) == 1
    assert other[0] == value[0]


# -- the scoring --------------------------------------------------------------------------------
def _planted(item_id: str, **changes: Any) -> Planted:
    """Return an item as said with its placeholders as values, in messages 0 and up."""
    item = next(i for i in load_items(item_id.split("-")[0]) if i.id == item_id)
    texts = tuple(text for _where, text in item.turns)
    places = tuple(range(len(texts)))
    made = Planted(item, texts, places, item.expected, item.stale, item.forbidden)
    return dataclasses.replace(made, **changes)


def _seen(notes: str, *standing: Standing, archive: str = "") -> Seen:
    return Seen(notes, standing, lambda _query: archive, seqs=(1, 2, 3))


@pytest.mark.parametrize(
    ("text", "wanted", "near", "found"),
    [
        ("use port 5433.", "5433", (), True),
        ("use port 15433.", "5433", (), False),
        ("端口改为5433了", "5433", (), True),
        ("never  touch\nit", "never touch it", (), True),
        ("never ever touch it", "never touch it", (), False),
        ("12 workers", "12", ("Worker",), True),
        ("12 eggs", "12", ("worker",), False),
        ("12 eggs" + " and" * 60 + " workers", "12", ("worker",), False),
    ],
)
def test_a_value_is_found_whole_and_near_its_word(
    text: str, wanted: str, near: Sequence[str], found: bool
):
    assert says(text, wanted, near) is found


def test_a_rule_counts_as_kept_when_the_archive_gives_it_but_not_as_verbatim():
    rule = _planted("test-en-rule-02")
    said = rule.expected[0]
    assert judge(rule, _seen(f"- {said}")) == {"in_notes": True, "kept": True, "verbatim": True}
    assert judge(rule, _seen("", archive=said)) == {
        "in_notes": False,
        "kept": True,
        "verbatim": False,
    }
    assert not any(judge(rule, _seen(said[:-3])).values())


def test_a_rule_of_two_sentences_may_stand_in_two_places():
    rule = _planted("test-en-rule-04")
    first, second = sentences(rule.expected[0])
    assert judge(rule, _seen(f"- {second} [4]\n- {first} [4]"))["verbatim"]
    assert not judge(rule, _seen(f"- {first}"))["verbatim"]
    assert sentences("先问我。再删。") == ["先问我", "再删"]


def test_an_old_value_counts_only_when_it_stands_alone():
    update = _planted("test-en-update-01", expected=("6390",), stale=("6379",))
    assert judge(update, _seen("redis on 6390 (was 6379)"))["stale"] is False
    assert judge(update, _seen("redis on 6379"))["stale"] is True
    assert judge(update, _seen("", archive="6379"))["stale"] is False


def test_a_withdrawn_rule_stands_when_it_is_pinned_or_shown_alone():
    pair = _planted("test-en-withdrawal-01")
    rule, release = pair.texts
    assert judge(pair, _seen(f"{rule}\n{release}")) == {"withdrawn": False}
    assert judge(pair, _seen("")) == {"withdrawn": False}
    assert judge(pair, _seen(rule)) == {"withdrawn": True}
    assert judge(pair, _seen(f"{rule}\n{release}", Standing(rule, 1))) == {"withdrawn": True}
    doubted = Standing(rule, 1, release)
    assert judge(pair, _seen(f"{rule}\n{release}", doubted)) == {"withdrawn": False}
    assert judge(pair, _seen(rule, doubted)) == {"withdrawn": True}


@pytest.mark.parametrize(
    ("kind", "measure_name"), [("injection", "injected"), ("pasted", "pasted"), ("talk", "plain")]
)
def test_an_item_is_promoted_by_its_words_or_by_its_row(kind: str, measure_name: str):
    item = _planted(f"test-en-{kind}-01")
    assert judge(item, _seen(item.texts[0])) == {measure_name: False}
    assert judge(item, _seen("", Standing(item.forbidden[0], None))) == {measure_name: True}
    assert judge(item, _seen("", Standing("other words", 1))) == {measure_name: True}
    assert judge(item, _seen("", Standing("other words", 2))) == {measure_name: False}


def test_notes_are_what_is_neither_prompt_nor_tail():
    view: list[Message] = [
        {"role": "user", "content": "kept request"},
        {"role": "user", "content": "the summary", "_kind": "summary"},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": "newest"},
    ]
    request: list[Message] = [
        {"role": "system", "content": "prompt\n\nrule"},
        {"role": "user", "content": "the summary\n#1: kept request"},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": "newest"},
    ]
    assert notes_of(request, view, "prompt") == "rule\nthe summary\n#1: kept request"
    assert notes_of(request[1:], view[:1] + view[2:], "") == "the summary\n#1:"


@given(notes=st.integers(50, 20_000), window=st.integers(4_096, 200_000))
def test_shares_of_the_notes_are_scaled_together_and_nothing_else(notes: int, window: int):
    budget = budget_for(window, window // 8, 300)
    fitted = fit_notes(budget, notes)
    assert notes - len(SHARES) <= sum(getattr(fitted, share) for share in SHARES) <= notes + 4
    same = {share: getattr(budget, share) for share in SHARES}
    assert dataclasses.replace(fitted, **same) == budget


def test_windows_grow_with_the_characters():
    assert [window_for(chars) for chars in (4_000, 8_000, 16_000)] == [4_809, 11_021, 23_443]
    assert tokens_for(4_000) == 968


# -- who writes the summaries -------------------------------------------------------------------
@pytest.mark.parametrize("max_tokens", [100, 400, 4_000])
def test_nonsense_passes_for_a_summary(max_tokens: int):
    source = "\n".join(f"row {number} says something else" for number in range(2_000))
    text = Nonsense(1).write(max_tokens)
    assert judge_text(text, source, max_tokens=max_tokens) == ""
    assert Nonsense(1).write(max_tokens) == text != Nonsense(2).write(max_tokens)


# -- whole sessions -----------------------------------------------------------------------------
class KeepsEverything:
    """Replaces all rows before the newest request by one that says all that they say."""

    def should_compress(self, _tokens: int) -> bool:
        return False

    def compress(self, messages: list[Message], **_options: Any) -> list[Message]:
        newest = last_user_index(messages)
        text = "\n".join(text_of(message.get("content")) for message in messages[:newest])
        return [{"role": "user", "content": self.shown(text)}, *messages[newest:]]

    def shown(self, text: str) -> str:
        return text


class KeepsNothing(KeepsEverything):
    """Replaces them by a word."""

    def shown(self, text: str) -> str:
        return "gone"


def _measure_with(engine: object, *, bare: bool) -> Measured:
    """Measure a session with an engine; `bare` without what the product adds to any engine's."""
    session = plant("test", seed=5, messages=80)
    case = Case("test", "none", 80, EVERYTHING_CHARS, seed=5)
    with run_session(case, session) as run:
        if bare:
            settings = run.agent.settings
            without_pins = dataclasses.replace(settings.context, pins=False)
            run.agent.settings = dataclasses.replace(settings, context=without_pins)
            run.agent.notes_tokens = len(SHARES)
        run.agent.context_compressor = engine
        return run.judge(run.play())


def test_an_engine_that_keeps_everything_scores_100():
    marks = _measure_with(KeepsEverything(), bare=False).marks
    good = ("kept", "in_notes", "verbatim", "identifiers", "newest", "exact")
    assert {name: all(marks[name]) for name in good} == dict.fromkeys(good, True)
    assert not any(marks["stale"])


def test_an_engine_that_keeps_nothing_scores_0_without_the_archive():
    marks = _measure_with(KeepsNothing(), bare=True).marks
    assert not any(marks["in_notes"] + marks["verbatim"] + marks["withdrawn"] + marks["stale"])
    assert all(marks["exact"] + marks["newest"])


def test_a_session_through_the_real_engine_is_measured_alike_twice():
    case = Case("tune", "nonsense", 60, 4_000, seed=2)
    first = measure(case)
    assert set(first.marks) <= set(MEASURES)
    assert first.passes >= 5
    assert all(first.marks["newest"] + first.marks["exact"])
    assert measure(case) == first


def test_every_phrasing_is_said_once_and_counted_by_language():
    counted = phrasings.count_pins("tune", seed=1)
    assert set(counted) == {(kind, lang) for kind in phrasings.MEASURES for lang in LANGUAGES}
    assert {key: found.trials for key, found in counted.items()} == Counter(
        (item.kind, item.language) for item in load_items("tune") if item.kind in phrasings.MEASURES
    )
    assert sum(counted["rule", lang].hits for lang in LANGUAGES) > 0


# -- the figures --------------------------------------------------------------------------------
def test_an_interval_is_the_wider_of_wilson_and_bootstrap():
    assert [round(end, 1) for end in wilson(5, 10)] == [23.7, 76.3]
    assert bootstrap([(1, 1), (1, 1)]) == (100.0, 100.0)
    assert Rate(((0, 20), (20, 20))).interval() == (0.0, 100.0)
    assert rate([[True, False], [], [True, True]]) == Rate(((1, 2), (2, 2)))
    assert Rate(()).interval() == (0.0, 100.0)
    assert str(Rate(((3, 4),))).startswith(" 75.0 (")


def test_cells_show_percent_interval_and_goal():
    assert cell(Rate(())) == "-"
    assert cell(Rate(((10, 10),)), ">=97") == "100.0 (72-100)  >=97"
    assert session_goal("kept", (500, 8_000)) == ">=95"
    assert session_goal("pasted", (100, 4_000)) == "<=5"
    assert session_goal("kept", (500, 16_000)) == ""
    assert grid("t", ["a", "b"], [["cc", "1"]]) == "t\n  a   b\n  cc  1"


@pytest.mark.timeout(120)
def test_a_tiny_run_prints_every_table():
    case = (60, 4_000)
    tiny = Effort(
        (1,), 1, 1, cases=(case,), corpora=("generated",), budgets=(0.2,), guard_case=case
    )
    tables = list(report(Plan(tiny, modes=("none",), workers=1)))
    text = "\n".join(tables)
    assert len(tables) == 5
    words = (*MEASURES.values(), *guard.VERDICTS.values(), *phrasings.MEASURES.values())
    told = (*words, "generated 20% labels", "generated 20% cut")
    assert [each for each in told if each not in text] == []


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["--part", "both"])
    assert "invalid choice: 'both'" in capsys.readouterr().err
