"""Regular expressions that are compiled when they are first used: import stays quick."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from re import compile

    pattern = compile
else:

    class pattern:
        """Behaves as `re.compile(text, flags)` does; each method is kept once it was asked for."""

        def __init__(self, text: str, flags: int = 0) -> None:
            self._given = text, flags

        def __getattr__(self, name: str) -> Any:
            found = getattr(re.compile(*self._given), name)
            setattr(self, name, found)
            return found
