"""Row numbers as people read and write them."""

from __future__ import annotations

from collections.abc import Iterable


def seq_ranges(seqs: Iterable[int]) -> str:
    """Return seqs as text: `1-4,7,9-12`; rows that have none yet (0) are left out."""
    ordered = sorted({seq for seq in seqs if seq})
    ranges: list[list[int]] = []
    for seq in ordered:
        if ranges and seq == ranges[-1][1] + 1:
            ranges[-1][1] = seq
        else:
            ranges.append([seq, seq])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
