"""compaction-guard's verdicts on the rules of our own sessions.

The guard watches one compaction from outside: the whole transcript before, the next request after,
and gives each registered rule one verdict. It repairs nothing here. Needs the package
`compaction-guard`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compaction_guard import Guard, Kind, Policy

from agent.base.messages import Message, wire_message
from benchmarks.fidelity.generate import plant
from benchmarks.fidelity.sessions_run import Case, run_session

CASE = (500, 16_000)
"""Messages of a session, and characters that the notes may take."""

VERDICTS = {
    "preserved": "rules preserved, verbatim or nearly",
    "lost": "rules dropped, mutated, weakened or contradicted",
    "unverifiable": "rules on which the guard gives no verdict",
    "at_risk": "rules preserved in the tail alone",
}
"""Every measure of the guard and what it says."""

Compactor = Callable[[list[Message]], list[Message]]

_BLOCK_TOKENS = 1_000_000
_OF_KIND = {
    Kind.PRESERVED: "preserved",
    Kind.PARAPHRASED: "preserved",
    Kind.UNVERIFIABLE: "unverifiable",
}


def watch(case: Case) -> dict[str, list[bool]]:
    """Run a session under the guard and return the outcomes of each verdict."""
    session = plant(case.part, seed=case.seed, messages=case.messages)
    rules = [each.expected[0] for each in session.planted if each.item.kind == "rule"]

    def compact(_context: list[Message]) -> list[Message]:
        with run_session(case, session) as run:
            return [wire_message(message) for message in run.play()]

    return verdicts(rules, session.messages, compact)


def verdicts(
    rules: Sequence[str], before: list[Message], compact: Compactor
) -> dict[str, list[bool]]:
    """Return for each verdict whether each rule got it, in the rules' order."""
    guard: Guard[list[Message]] = Guard(rules, policy=Policy.WARN, max_block_tokens=_BLOCK_TOKENS)
    guard.compact(before, compact)
    report = guard.last_report
    assert report is not None
    kinds = [_OF_KIND.get(finding.kind, "lost") for finding in report.findings]
    outcomes = {name: [kind == name for kind in kinds] for name in VERDICTS}
    outcomes["at_risk"] = [finding.at_risk for finding in report.findings]
    return outcomes
