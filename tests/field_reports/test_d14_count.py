"""D14: text of every language is counted at its size: no pass comes late, no tail is too big."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.tokens import estimate_message, estimate_text
from agent.sessions.records import PassStatus
from agent.testing.builders import assistant, user
from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from agent.testing.stub_strict import count_message, count_text, count_tokens
from tests.field_reports.harness import SUMMARISER, SUMMARY, settings_for

CHARS, TAIL_TOKENS = 40_000, 2_000
WINDOW = 16_000
PIECE = 800

_ENGLISH = (
    "the service returns an error when another worker opens this queue while its first request "
    "still waits for a lock so we should check order before changing any setting"
).split()
_ALPHABETS = {
    "chinese": "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对",
    "japanese": "私は昨日会議で決めたことを確認してから新設定書き直すつもりテストログ",
    "korean": "사용자인증모듈에서오류가발생하는이유를설명해주세요데이터베이스연결",
    "emoji": "😀😃🚀🔥✨🎉🐛🔧📦🧪🗂🧠💾🌍🙏",
    "arabic": "يرجىالتحققمنسببانتهاءمهلةالاتصالبقاعدةالبياناتوتعديلملفالإعدادات",
    "russian": "проверьтепричинуистечениявремениожиданияподключениякбазеданныхиизменитефайл",
}
LANGUAGES = ["english", *_ALPHABETS, "mixed"]
WIDE = ["chinese", "japanese", "korean"]
EVERY_LANGUAGE = pytest.mark.parametrize("language", LANGUAGES)


def written_in(language: str, chars: int, seed: object = 0) -> str:
    """Return `chars` characters of random text in a language, with its usual spaces and stops."""
    chance = random.Random(f"{language} {seed}")
    if language == "mixed":
        size = chars // len(_ALPHABETS) + 1
        return "".join(written_in(name, size, seed) for name in _ALPHABETS)[:chars]
    parts, size = [], 0
    while size < chars:
        if language == "english":
            part = " ".join(chance.choices(_ENGLISH, k=9)).capitalize() + ". "
        elif language in ("chinese", "japanese"):
            part = "".join(chance.choices(_ALPHABETS[language], k=18)) + "。"
        elif language == "emoji":
            part = "".join(chance.choices(_ALPHABETS[language], k=18))
        else:
            part = "".join(chance.choices(_ALPHABETS[language], k=6)) + " "
        parts.append(part)
        size += len(part)
    return "".join(parts)[:chars]


@pytest.fixture
def stub():
    with StubModelServer(window_tokens=WINDOW) as server:
        server.script([], model=SUMMARISER, then=Reply(text=SUMMARY))
        yield server


@EVERY_LANGUAGE
def test_d14_forty_thousand_characters_never_overflow_the_window(stub, open_bench, language):
    bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    text = written_in(language, CHARS)
    pieces = [text[start : start + PIECE] for start in range(0, CHARS, PIECE)]
    stub.script(lambda request: Reply(text=f"ok {written_in(language, 40, len(request.messages))}"))
    for piece in pieces:
        bench.agent.chat(piece)
    assert bench.refusals == []
    assert len(bench.main_requests) == len(pieces)
    sizes = [count_tokens(request.messages) for request in stub.requests]
    assert max(sizes) <= WINDOW - bench.agent.reserve_tokens
    if count_text(text) > WINDOW:
        assert bench.committed
        assert bench.summary_requests
    assert {row.status for row in bench.passes} <= {PassStatus.COMMITTED}
    assert "".join(row["content"] for row in bench.rows if row["role"] == "user") == text


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_d14_nor_with_passes_that_are_prepared_in_the_background(stub, open_bench, language):
    bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW, background=True))
    for number in range(60):
        bench.agent.chat(written_in(language, PIECE, number))
    assert bench.refusals == []
    assert bench.committed
    sizes = [count_tokens(request.messages) for request in bench.main_requests]
    assert max(sizes) <= WINDOW - bench.agent.reserve_tokens
    assert len(bench.rows) == 2 * len(sizes)


@EVERY_LANGUAGE
def test_d14_the_trigger_is_reached_near_its_size_by_the_providers_count(
    stub, open_bench, language
):
    bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    for number in range(200):
        bench.agent.chat(written_in(language, PIECE, number))
        if bench.passes:
            break
    before, after = (count_tokens(request.messages) for request in bench.main_requests[-2:])
    assert bench.passes[0].trigger == "turn_start_threshold"
    assert 0.85 * bench.agent.trigger_tokens <= before <= 1.05 * bench.agent.trigger_tokens
    assert after < before


@pytest.mark.parametrize("calibrated", [False, True], ids=["no report yet", "after a report"])
@EVERY_LANGUAGE
def test_d14_the_kept_tail_has_its_size_by_the_providers_count(
    stub, open_bench, language, calibrated
):
    bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    if calibrated:
        bench.agent.chat(written_in(language, PIECE, "first"))
    for number in range(60):
        bench.fill([user(written_in(language, 60, number)), assistant(written_in(language, 60))])
    bench.compressor.tail_token_budget = TAIL_TOKENS
    assert bench.agent.compress().status is PassStatus.COMMITTED
    view = bench.view
    newest = max(at for at, row in enumerate(view) if row.get("_kind") == "summary")
    kept = sum(count_message(row) for row in view[newest + 1 :])
    assert 0.5 * TAIL_TOKENS <= kept <= 1.25 * TAIL_TOKENS


@pytest.mark.parametrize("language", LANGUAGES)
def test_d14_the_estimate_is_never_far_below_the_strict_count(language):
    text = written_in(language, CHARS)
    assert estimate_text(text) >= 0.8 * count_text(text)
    for chars in (1, 7, 50, 333):
        assert estimate_text(text[:chars]) >= int(0.8 * count_text(text[:chars]))


WIDE_TEXT = st.text(
    st.characters(min_codepoint=0x3041, max_codepoint=0x30FF)
    | st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF)
    | st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3)
    | st.characters(min_codepoint=0x20, max_codepoint=0x7E)
    | st.sampled_from("。、！？，「」…😀🚀✨👩‍💻 \n"),
    min_size=1,
    max_size=300,
)


@given(text=WIDE_TEXT)
def test_d14_no_mix_of_wide_text_is_counted_at_less_than_four_fifths(text):
    assert estimate_text(text) >= int(0.8 * count_text(text))
    assert estimate_message(user(text)) >= 0.8 * count_message(user(text))


@EVERY_LANGUAGE
def test_d14_after_one_report_the_estimate_follows_the_providers_count(stub, open_bench, language):
    bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    bench.agent.chat(written_in(language, 2_000, "first"))
    ratio = bench.agent.calibration.ratio
    bench.agent.chat(written_in(language, 2_000, "second"))
    real = count_tokens(bench.main_requests[-1].messages)
    estimated = bench.agent.context().total - count_message(assistant("ok"))
    assert bench.agent.calibration.reports == 2
    assert estimated == pytest.approx(real, rel=0.15)
    assert 0.5 <= ratio <= 4.0


def test_d14_a_provider_that_counts_thrice_as_much_is_believed_at_once(stub, open_bench):
    def thrice(request):
        count = 3 * count_tokens(request.messages)
        return Reply(
            usage={"prompt_tokens": count, "completion_tokens": 1, "total_tokens": count + 1}
        )

    stub.script(thrice)
    bench = open_bench(settings_for(stub.base_url, window_tokens=WINDOW))
    sizes = []
    for number in range(20):
        bench.agent.chat(written_in("english", 1_600, number))
        sizes.append(3 * count_tokens(bench.main_requests[-1].messages))
    assert bench.committed
    assert max(sizes) <= WINDOW - bench.agent.reserve_tokens
