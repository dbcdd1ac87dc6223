"""One pass in full: what it would do (a preview) or what it did, from its ledger row."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from agent.base.errors import HermesError, ProviderError, UsageError
from agent.base.messages import text_of
from agent.compaction.cooldown import FailedRung
from agent.sessions.records import PassKind, PassRecord, PassStatus
from agent.tui import figures
from agent.tui.failures import INTERRUPTED, Failure
from agent.tui.render import KIND_WORDS, Line, before_after, pass_line

_LABEL_CELLS = 16
_STOPPED = frozenset({"explicit_interrupt", "stall_interrupted", "commit_fence_cancelled"})
_EXIT_CODES = {
    PassStatus.FAILED: ProviderError.exit_code,
    PassStatus.BLOCKED: UsageError.exit_code,
    PassStatus.SUPERSEDED: HermesError.exit_code,
}
_TOLD_ABOVE = frozenset(
    {"tokens_before", "tokens_after", "strategy", "reason", "summary_model", "gain"}
)


def pass_lines(record: PassRecord) -> list[Line]:
    """Return every field of a ledger row that says something, one a line, then the receipt."""
    facts = {
        "pass": record.id,
        "session": record.session_id,
        "status": record.status.value + (f" ({record.count} times)" if record.count > 1 else ""),
        "kind": KIND_WORDS[record.kind],
        "steps": record.strategy,
        "trigger": record.trigger,
        "reason": record.failure_class,
        "detail": figures.one_line(record.detail),
        "tokens": before_after(record.tokens_before, record.tokens_after, "").strip(),
        "messages": before_after(record.messages_before, record.messages_after, "").strip(),
        "summary model": record.route or record.model,
        "cost": figures.dollars(record.cost) if record.cost is not None else "",
        **_gain_facts(record.receipt.get("gain") or {}),
        "started": figures.moment(record.created_at),
        "took": _durations(record.durations),
    }
    return _fact_lines(facts | _receipt_facts(record.receipt))


def memory_lines(rung: FailedRung | None) -> list[Line]:
    """Return what is remembered of a pass whose summary failed: what is not asked for again yet."""
    if rung is None:
        return []
    what = f"rows {rung.first_seq}-{rung.last_seq} ({rung.rows}) by {rung.model}"
    until = f"before {figures.moment(rung.until)}"
    return _fact_lines(
        {"not again": f"a summary of {what}, {until} unless rows, model or route change"}
    )


def plan_lines(record: PassRecord) -> list[Line]:
    """Return a preview: the outcome on one line, the receipt, and the text that would stand in."""
    planned = as_planned(record)
    lines = [pass_line(planned), *_fact_lines(_receipt_facts(planned.receipt))]
    text = text_of((record.plan.get("new_row") or {}).get("content"))
    if text:
        lines.append(Line("text that would stand in for them:", "dim"))
        lines += [Line(f"  {part}") for part in text.split("\n")]
    return lines


def pass_failure(record: PassRecord) -> Failure | None:
    """Return why a pass that was asked for did not do what it should; None when it did, or when
    there was nothing to gain."""
    if record.failure_class in _STOPPED:
        code = INTERRUPTED
    elif record.status in _EXIT_CODES:
        code = _EXIT_CODES[record.status]
    else:
        return None
    detail = f": {record.detail}" if record.detail else ""
    return Failure(
        f"{pass_line(record).text}{figures.one_line(detail)}", code, record.failure_class
    )


def as_planned(record: PassRecord) -> PassRecord:
    """Return the ledger row of a prepared pass with the figures of its plan; others as they are."""
    plan = record.plan
    if "kind" not in plan:
        return record
    return dataclasses.replace(
        record,
        kind=PassKind(plan["kind"]),
        strategy=plan["strategy"],
        failure_class=plan["failure_class"] or record.failure_class,
        tokens_after=plan["tokens_after"],
        messages_after=plan["messages_after"],
        receipt=plan["receipt"],
    )


def _gain_facts(gain: Mapping[str, Any]) -> dict[str, str]:
    """Return what a pass was expected to gain and what it gained, and how the cache stood."""
    facts = {"prompt cache": str(gain.get("cache", "")).removeprefix("unknown")}
    for name, kind in (("gain expected", "predicted"), ("gain measured", "actual")):
        tokens, dollars = gain.get(f"{kind}_tokens"), gain.get(f"{kind}_dollars")
        if tokens is not None:
            sign = "-" if (dollars or 0) < 0 else ""
            saved = "" if dollars is None else sign + figures.dollars(abs(dollars))
            money = f", {saved} at the next one" if saved else ""
            facts[name] = f"{figures.count(tokens)} tokens a request{money}"
    return facts


def _receipt_facts(receipt: Mapping[str, Any]) -> dict[str, str]:
    return {
        name.replace("_", " "): _value_text(value)
        for name, value in receipt.items()
        if name not in _TOLD_ABOVE and value not in ("", 0, None, [])
    }


def _fact_lines(facts: Mapping[str, str]) -> list[Line]:
    """Return facts below each other, empty ones left out."""
    return [
        Line(f"{figures.pad(name, _LABEL_CELLS)}{value}") for name, value in facts.items() if value
    ]


def _value_text(value: Any) -> str:
    if isinstance(value, list):
        return figures.one_line(", ".join(map(_item_text, value)))
    if isinstance(value, float):
        return figures.percent(value, 1)
    return figures.count(value) if isinstance(value, int) else figures.one_line(str(value))


def _item_text(item: Any) -> str:
    """Return a dropped identifier as it is, and a cited section with its rows."""
    if isinstance(item, Mapping):
        return f"{item['heading'] or 'all'} [{item['rows']}]"
    return str(item)


def _durations(durations: Mapping[str, int]) -> str:
    """Return the total first, then the steps."""
    parts = [
        f"{step} {figures.duration(spent_ms / 1000)}"
        for step, spent_ms in durations.items()
        if step != "total"
    ]
    total = durations.get("total")
    whole = figures.duration(total / 1000) if total is not None else ""
    return f"{whole} ({', '.join(parts)})" if whole and parts else whole or ", ".join(parts)
