"""Which file a store lies in."""

from __future__ import annotations

from pathlib import Path

from agent.base.errors import UsageError
from agent.base.paths import default_database


def database_path(db_path: Path | str | None, url: str | None) -> Path:
    """Return the absolute path of the file that a path or a URL names, else the default one.

    Raises: UsageError: both are given, or the URL names another kind of database.
    """
    if db_path is not None and url:
        raise UsageError(f"give the store a path ({str(db_path)!r}) or a URL ({url!r}), not both")
    if url:
        scheme, separator, rest = url.partition("://")
        if not separator:
            db_path = url
        elif scheme == "sqlite" and len(rest) > 1 and rest.startswith("/"):
            db_path = rest[1:]
        else:
            raise UsageError(
                f"store URL {url!r} is not supported; give a path or sqlite:///path "
                "(sqlite:////path when it is absolute)"
            )
    path = Path(db_path).expanduser() if db_path is not None else default_database()
    if path.name == ":memory:":
        raise UsageError("a store in memory is not supported; give the path of a file")
    return path.absolute()
