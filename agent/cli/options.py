"""How commands are declared: one kind of typer app, options, and records of many options."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

R = TypeVar("R")

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SessionName = Annotated[
    str, typer.Argument(metavar="SESSION", help="Id, beginning of an id, or title.")
]


def command_app(about: str | None = None) -> typer.Typer:
    """Return an app for the commands of one module; `about` is the help of a group."""
    return typer.Typer(help=about, rich_markup_mode=None, add_completion=False)


def takes_options(record: Callable[..., R]) -> Callable[[Callable[[R], None]], Callable[..., None]]:
    """Let a typer command take a dataclass whose fields are annotated like its parameters."""

    def decorate(command: Callable[[R], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_options(**given: Any) -> None:
            command(record(**given))

        with_options.__signature__ = inspect.signature(record, eval_str=True)  # type: ignore[attr-defined]  # read by typer
        with_options.__annotations__ = typing.get_type_hints(record, include_extras=True)
        return with_options

    return decorate
