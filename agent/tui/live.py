"""What stands below the conversation while it goes on: pure functions of a snapshot."""

from __future__ import annotations

from agent.base.record import dataclass
from agent.tui import figures
from agent.tui.render import meter_text


@dataclass(frozen=True)
class Footer:
    """What the toolbar is made of; `used_tokens` is None until the context is known."""

    model: str
    session: str
    """Title, or id while there is none."""
    used_tokens: int | None = None
    usable_tokens: int = 0
    queued: int = 0


def toolbar_text(footer: Footer, width: int) -> str:
    """Return the toolbar for `width` cells: the meter first, then what still fits."""
    parts = []
    if footer.used_tokens is not None and footer.usable_tokens:
        parts.append(meter_text(footer.used_tokens, footer.usable_tokens, width - 2))
    if footer.queued:
        parts.append(f"{footer.queued} queued")
    parts += [footer.model, footer.session]
    text = ""
    for part in parts:
        longer = f"{text} | {part}" if text else part
        if figures.cells(longer) > width - 2:
            break
        text = longer
    return f" {text}" if text else ""


def status_text(activity: str, elapsed_s: float, *, stopping: bool) -> str:
    """Return the line that is shown while a turn or a pass runs."""
    if stopping:
        return f"stopping {activity}; Ctrl-C again leaves"
    return f"{activity}, {figures.duration(elapsed_s)}; Ctrl-C stops"


def wrap(text: str, width: int) -> list[str]:
    """Return `text` as lines of at most `width` cells, broken after blanks where there are any."""
    lines = []
    for line in text.split("\n"):
        rest = line
        while figures.cells(rest) > width:
            kept = figures.clip(rest, width + 1)[:-1] or rest[:1]
            kept = kept[: kept.rfind(" ") + 1] or kept
            lines.append(kept)
            rest = rest[len(kept) :]
        lines.append(rest)
    return lines


def tail(text: str, width: int, height: int) -> str:
    """Return the last `height` screen lines of a text that is still growing."""
    return "\n".join(wrap(text.lstrip("\n"), max(width, 2))[-max(height, 1) :]) if text else ""
