"""What stands in rows that left the view and is likeliest to be asked for, whatever the words.

That is what the user said, and of what others printed the things of a rare shape: an id among
line numbers, an address among paths.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain, zip_longest

from agent.base.extract_things import outline_of
from agent.sessions.places import conversation_of
from agent.sessions.sqlite import Connection

_MOST_THINGS = 20_000
"""Newest things whose shapes are compared."""
_RARE = 3
"""Things that have a rare shape, at most."""
_TELLING = re.compile(r"[\d/]")
_LEFT = """
WHERE p.conversation_id = ? AND p.hidden_by IS NULL AND m.kind = 'message'
AND coalesce(p.compacted_by, p.masked_by) IS NOT NULL"""
_SAID = f"""
SELECT p.seq, '' FROM places p CROSS JOIN messages m ON m.id = p.row_id
{_LEFT} AND m.role = 'user' ORDER BY p.seq DESC LIMIT ?"""
_PRINTED = f"""
SELECT p.seq, e.value FROM places p
CROSS JOIN messages m ON m.id = p.row_id CROSS JOIN extracts e ON e.row_id = p.row_id
{_LEFT} AND m.role != 'user' AND e.kind = 'identifier'
ORDER BY p.seq DESC, e.start LIMIT {_MOST_THINGS}"""


def unseen(connection: Connection, session_id: str, limit: int) -> list[tuple[int, str]]:
    """Return (seq, part) of rows, the user's (part is empty: the whole row) and others in turn.

    The user's come newest first, others by how rare the shape of `part` is, the newest of equals.
    """
    scope = conversation_of(connection, session_id)
    said = connection.execute(_SAID, (scope, limit)).fetchall()
    things = [
        (seq, thing, outline_of(thing))
        for seq, value in connection.execute(_PRINTED, (scope,))
        for thing in value.split()
        if _TELLING.search(thing)
    ]
    common = Counter(shape for _seq, _thing, shape in things)
    things = [found for found in things if common[found[2]] <= _RARE]
    things.sort(key=lambda found: common[found[2]])
    printed: dict[int, str] = {}
    for seq, thing, _shape in things:
        printed.setdefault(seq, thing)
    in_turn = chain.from_iterable(zip_longest(said, printed.items()))
    return [found for found in in_turn if found is not None][:limit]
