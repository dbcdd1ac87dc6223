from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.relevance import PASSAGE_CHARS, best_passage, weights_of, words_of


def _best(question: str, texts: list[str]) -> int:
    words = words_of(question)
    folded = [text.casefold() for text in texts]
    counts = {word: sum(word in text for text in folded) for word in words}
    weights = weights_of(words, counts, len(texts))
    scores = [best_passage(text, weights).score for text in folded]
    return scores.index(max(scores))


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("the port of the database", ("port", "datab", "data", "abas")),
        ("who touched src/auth/login.py:12?", ("src/auth/login.py:12", "touch", "touc", "uche")),
        ("ticket OPS-1234", ("ops-1234", "ticke", "tick")),
        ("备用服务器地址", ("备用", "用服", "服务", "务器", "器地", "地址")),
        ("where is it", ("where", "is", "it")),
        ("", ()),
    ],
)
def test_a_question_gives_names_as_they_are_and_stems_and_ends_of_its_words(
    question: str, words: tuple[str, ...]
) -> None:
    assert tuple(words_of(question)) == words


@pytest.mark.parametrize(
    ("question", "texts"),
    [
        (
            "ticket about the double payment",
            [
                "payments were paid twice: PAY-12",
                "the tickets of the zoo",
                "ticket PAY-77: payment doubled",
            ],
        ),
        ("Sicherung der Datenbank", ["Datei gesichert", "x", "Die Datenbanksicherung liegt in /b"]),
        ("Port des Lesereplikats", ["heute", "morgen", "das Replikat auf 5433"]),
        ("Rückfrage", ["rückwärts", "Rücken", "wenn du kurz nachfragst"]),
        ("adresse du serveur", ["l'adresse mail", "le serveur", "serveur : adresse 10.0.0.1"]),
        ("工号", ["今天下雨", "明天开会", "李雷的工号是77"]),
    ],
)
def test_the_text_that_says_most_of_a_question_wins(question: str, texts: list[str]) -> None:
    assert _best(question, texts) == 2


def test_rare_words_count_more_than_common_ones() -> None:
    texts = ["build build ok", "build ok", "build failed at ok", "the walrus"]
    assert _best("build walrus", texts) == 3


def test_the_passage_is_where_the_words_stand_together() -> None:
    text = "alpha " + "x " * 1_000 + "beta " + "y " * 1_000 + "alpha and beta"
    found = best_passage(text, {"alpha": 1.0, "beta": 1.0})
    assert text[found.start : found.end] == "alpha and beta"


@given(
    text=st.text("ab c日本", max_size=900), words=st.lists(st.text("abc日", min_size=1), max_size=4)
)
def test_a_passage_stands_in_its_text_and_is_short(text: str, words: list[str]) -> None:
    found = best_passage(text, dict.fromkeys(words, 1.0))
    longest = max(map(len, words), default=0)
    assert 0 <= found.start <= found.end <= len(text)
    assert found.end - found.start <= PASSAGE_CHARS + longest
    assert (found.score > 0) == (found.end > found.start)
