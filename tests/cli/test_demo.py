"""`hermes demo`, played on a scripted model so that it is quick."""

from __future__ import annotations

import re
import threading

import pytest

from agent.base.errors import CallCancelled
from agent.cli import demo as demo_module
from agent.cli.demo import comparison, play, read_tale, view_comparison
from agent.cli.replay import Replay, Script
from agent.providers.protocol import CallWatch, Delta, Limits, ModelRequest
from agent.testing.scripted import Scripted, ScriptedProvider

LIMITS = Limits()


class SmallModel(ScriptedProvider):
    """A scripted model with the demo's window, without tools."""

    supports_tools = False


def request(role: str) -> ModelRequest:
    system = [{"role": "system", "content": "s"}] if role == "turn" else []
    return ModelRequest([*system, {"role": "user", "content": "q"}], max_tokens=10)


def small(*script: Scripted | str, then: Scripted | str = "ok") -> SmallModel:
    window = demo_module.SETTINGS.local.context_length
    return SmallModel(script, then=then, window_tokens=window, model="small")


def test_the_demo_compacts_twice_and_reads_back_what_was_summarised_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = play(small(*read_tale().summaries))
    out = capsys.readouterr().out
    assert code == 0
    assert out.count("compacted (summary), ") == 2
    assert "Now the model itself answers:" in out
    assert "#10 assistant" in out
    assert "now compacted" in out
    assert "\nbyte for byte what was accepted: yes (sha256 " in out
    assert out.count("  committed  ") == 2
    before, after = re.findall(r"(?:before the pass|after the undo): +(\d+ rows? \(\w+ \w+)", out)
    assert before == after
    assert out.endswith("the view is back: yes\n\ndone in " + out.split("done in ")[1])
    assert "done in " in out


def test_a_useless_summary_gives_way_to_the_digest_and_the_demo_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = play(small(then="the the the " * 60))
    out = capsys.readouterr().out
    assert code == 0
    assert out.count("compacted (mechanical digest), ") >= 2
    assert "no summary: summary_refused:repeating" in out
    assert "the view is back: yes\n" in out


def test_the_tale_is_whole() -> None:
    tale = read_tale()
    assert len(tale.pairs) == 20
    assert len(tale.summaries) == 2
    assert sum(demo_module.SOUGHT in text for pair in tale.pairs for text in pair) == 1


def test_a_view_is_compared_with_every_key() -> None:
    row = {"role": "user", "content": "a", "_seq": 1}
    assert view_comparison([row], [row], 2)[1].endswith("2 more came later; the view is back: yes")
    assert view_comparison([row], [{**row, "_seq": 2}], 0)[1].endswith("the view is back: NO")


def test_a_comparison_is_of_every_byte() -> None:
    assert comparison("a", ["a"]).startswith("byte for byte what was accepted: yes (sha256 ca97")
    assert comparison("a ", ["a"]).startswith("byte for byte what was accepted: NO ")


def test_a_stored_answer_is_used_once_and_only_for_a_turn() -> None:
    script = Script(summaries=["S1"], live_answer="L", answer="stored")
    real = small("summary by the model", "answer by the model")
    replay = Replay(real, script, 60.0, pytest.fail)
    heard: list[Delta] = []
    watch = CallWatch(on_delta=heard.append)
    kinds = ("summary", "turn", "turn")
    texts = [
        replay.complete(request(kind), limits=LIMITS, watch=watch).message["content"]
        for kind in kinds
    ]
    assert texts == ["summary by the model", "stored", "answer by the model"]
    assert "".join(delta.text for delta in heard) == "".join(texts)


def test_what_the_model_does_not_finish_is_replaced_and_that_is_said() -> None:
    never = threading.Event()
    script = Script(summaries=["S1", "S2"], live_answer="L")
    real = small(Scripted("x", finish="length"), then=Scripted("late", hold=never))
    notes: list[str] = []
    patient, hasty = (Replay(real, script, limit_s, notes.append) for limit_s in (60.0, 0.05))
    calls = ((patient, "summary"), (hasty, "summary"), (hasty, "summary"), (hasty, "turn"))
    texts = [
        replay.complete(request(kind), limits=LIMITS, watch=CallWatch()).message["content"]
        for replay, kind in calls
    ]
    assert texts == ["S1", "S2", "S2", "L"]
    assert notes == [
        "the model's summary ran into its length limit: a stored one stands in",
        "the model's summary was not ready after 0.05 s: a stored one stands in",
        "the model's summary was not ready after 0.05 s: a stored one stands in",
        "the model's answer was not ready after 0.05 s: a stored one stands in",
    ]


def test_a_stop_is_not_taken_for_the_end_of_the_time() -> None:
    replay = Replay(
        small(then=Scripted("late", hold=threading.Event())),
        Script(summaries=["S"], live_answer="L"),
        60.0,
        pytest.fail,
    )
    watch = CallWatch()
    stopper = threading.Timer(0.05, watch.cancel.cancel)
    stopper.start()
    with pytest.raises(CallCancelled):
        replay.complete(request("turn"), limits=LIMITS, watch=watch)
    stopper.join()
