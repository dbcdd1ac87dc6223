"""Replaces a file in one step: a reader sees the old text or the new one, never half of either."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path`, whose folder exists; an existing file keeps its mode.

    `path` should be resolved: a symbolic link would be replaced, not followed.
    Raises: OSError; then the old file stands unchanged and nothing is left beside it.
    """
    scratch = path.with_name(f".{secrets.token_hex(8)}.part")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
