"""After a provider refused a request as too large: learn, compact and try again, within bounds."""

from __future__ import annotations

from agent.base.errors import ContextCannotFit, ContextOverflow, ProviderError
from agent.base.tokens import Calibration
from agent.turn.host import Turn, TurnHost
from agent.turn.request import Shaped


def recover_from_overflow(host: TurnHost, turn: Turn, error: ProviderError, shaped: Shaped) -> None:
    """Make the next request smaller after an overflow, or raise.

    The provider's own numbers replace ours: a smaller window, or a larger count.
    Raises: the error itself when it is no overflow; ContextCannotFit, with the size and the
    limit, when compaction is off, freed nothing, or was tried `compression.max_attempts` times.
    """
    if not isinstance(error, ContextOverflow):
        raise error
    size, limit = _learn(host, error, shaped)
    tries = host.settings.compression.max_attempts
    if not host.settings.compression.enabled:
        advice = "compaction is off (compression.enabled): switch it on or start anew with /new"
    elif turn.overflow_passes >= tries:
        advice = f"{tries} compactions did not help (compression.max_attempts)"
    else:
        turn.overflow_passes += 1
        generation = host.live.head.generation

        def is_unchanged() -> bool:
            host.live.refresh()
            return host.live.head.generation == generation

        host.background.attempt(turn, trigger="overflow", needed=is_unchanged)
        if not is_unchanged():
            return
        advice = "compaction could free nothing more; shorten the newest message or start anew"
    raise ContextCannotFit(
        f"{host.provider.route} refused a request of about {size} tokens as larger than its window "
        f"of {limit}; {advice}",
        needed_tokens=size,
        limit_tokens=limit,
    ) from error


def _learn(host: TurnHost, error: ContextOverflow, shaped: Shaped) -> tuple[int, int]:
    """Take the provider's numbers over and return (size, limit) of what it refused, in tokens."""
    if error.limit_tokens is not None and error.limit_tokens < host.window_tokens:
        host.learn_window(error.limit_tokens)
    estimated = shaped.tokens + host.budget().overhead_tokens
    real = max(error.request_tokens or 0, error.limit_tokens or host.window_tokens)
    if real > host.calibration.apply(estimated):
        calibration = Calibration().observe(estimated, real)
        host.calibrate(calibration, calibration.to_dict())
    return error.request_tokens or host.calibration.apply(estimated), host.window_tokens
