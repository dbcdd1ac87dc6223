"""After a provider refused a request: learn what it says, make the request fit, try again within
bounds."""

from __future__ import annotations

from agent.base.errors import ContextCannotFit, ContextOverflow, ProviderError, RequestRefused
from agent.base.events import Notice
from agent.base.images import is_image
from agent.base.tokens import Calibration
from agent.providers.overflow import output_limit, says_no_images
from agent.turn.host import Turn, TurnHost
from agent.turn.request import Shaped


def recover(host: TurnHost, turn: Turn, error: ProviderError, shaped: Shaped) -> None:
    """Make the next request one that the provider takes, or raise.

    Raises: the error itself when nothing can be learned from it; ContextCannotFit after an
    overflow, with the size and the limit, when compaction is off, freed nothing, or was tried
    `compression.max_attempts` times.
    """
    if isinstance(error, ContextOverflow):
        _recover_from_overflow(host, turn, error, shaped)
    elif not (isinstance(error, RequestRefused) and _learned(host, error, shaped)):
        raise error


def _learned(host: TurnHost, error: RequestRefused, shaped: Shaped) -> bool:
    """Take over a smaller answer limit, or that the model takes no images."""
    route, said = host.routes.current, str(error)
    limit = output_limit(said)
    if limit is not None and limit < host.reserve_tokens:
        route.learn("refusal", output_tokens=limit)
    elif says_no_images(said) and route.takes_images and _shows_images(shaped):
        route.learn("refusal", takes_images=False)
        host.emit(
            Notice(
                level="warning",
                text=f"{host.provider.route} takes no images: a label stands for each from now on "
                "(model.image_support)",
            )
        )
    else:
        return False
    host.use_route(route)
    return True


def _shows_images(shaped: Shaped) -> bool:
    contents = (message.get("content") for message in shaped.messages)
    return any(isinstance(parts, list) and any(map(is_image, parts)) for parts in contents)


def _recover_from_overflow(
    host: TurnHost, turn: Turn, error: ContextOverflow, shaped: Shaped
) -> None:
    """Make the next request smaller; the provider's own numbers replace ours: a smaller window, or
    a larger count."""
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
    if real > host.counted(estimated):
        calibration = Calibration().observe(estimated, real)
        host.calibrate(calibration, calibration.to_dict())
    return error.request_tokens or host.counted(estimated), host.window_tokens
