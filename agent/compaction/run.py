"""Run an engine so that a stop, a deadline or a hang of it never holds the caller."""

from __future__ import annotations

import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

from agent.auxiliary_client import AuxiliaryExplicitCancellation
from agent.base.errors import CallTimeout
from agent.base.messages import Message, copy_messages
from agent.compaction.context_compressor import ContextCompressor
from agent.compaction.fence import CompressionCommitFence

TICK_S = 0.25
_GRACE_S = 0.1

Compress = Callable[..., list[Message]]
_BUILT_IN = (ContextCompressor.compress, ContextCompressor.micro_compress)


def accepted_options(compress: Compress, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that `compress` takes, by its signature; it is not called to see."""
    try:
        parameters = inspect.signature(compress).parameters.values()
    except (TypeError, ValueError):
        return dict(options)
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return dict(options)
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in options.items() if name in names}


def hand_over(inputs: list[Message], compress: Compress) -> list[Message]:
    """Return what an engine is given: rows with `_ref`, their index, that it may keep and change.

    The built-in engine changes none and numbers them itself.
    """
    if getattr(compress, "__func__", None) in _BUILT_IN:
        return inputs
    copies = copy_messages(inputs)
    return [{**message, "_ref": index} for index, message in enumerate(copies)]


def raise_if_ended(fence: CompressionCommitFence) -> None:
    """Raise what has ended an attempt: a stop, or the passing of its total ceiling.

    Raises: AuxiliaryExplicitCancellation; CallTimeout.
    """
    if fence.deadline_exceeded and not fence.token.cancelled:
        raise _too_late()
    if fence.is_cancelled:
        raise AuxiliaryExplicitCancellation


def _too_late() -> CallTimeout:
    return CallTimeout(
        "the compaction passed its total limit "
        "(compression.context_total_ceiling_seconds) and was ended"
    )


def run_engine(
    compress: Compress,
    messages: list[Message],
    options: Mapping[str, Any],
    *,
    fence: CompressionCommitFence,
    tick: Callable[[], None],
) -> list[Message]:
    """Return what the engine returns for `messages`, which it may keep and change.

    The engine runs in a daemon thread with a copy of the caller's context variables; `tick` is
    called in the caller's thread every quarter of a second meanwhile.
    Raises: AuxiliaryExplicitCancellation as soon as the fence is cancelled, whether or not the
    engine listens; CallTimeout when the fence's total ceiling passes; else what the engine raises.
    """
    result: list[list[Message]] = []
    failure: list[BaseException] = []
    done = threading.Event()
    accepted = accepted_options(compress, options)

    def work() -> None:
        try:
            result.append(compress(messages, **accepted))
        except BaseException as error:
            failure.append(error)
        finally:
            done.set()

    thread = threading.Thread(
        target=contextvars.copy_context().run, args=(work,), name="hermes-engine", daemon=True
    )
    unregister = fence.token.on_cancel(done.set)
    thread.start()
    try:
        while not done.wait(TICK_S):
            if fence.deadline_exceeded:
                fence.cancel_before_commit()
                raise _too_late()
            tick()
        if not result and not failure:
            thread.join(_GRACE_S)
    finally:
        unregister()
    if failure:
        raise failure[0]
    if not result:
        raise AuxiliaryExplicitCancellation
    return result[0]
