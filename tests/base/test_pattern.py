from __future__ import annotations

import re

from agent.base.pattern import pattern


def test_a_pattern_behaves_as_the_compiled_one():
    words = pattern(r"(\w)(\w*)", re.ASCII)
    plain = re.compile(r"(\w)(\w*)", re.ASCII)
    text = "one two über"
    assert words.findall(text) == plain.findall(text)
    assert words.sub(r"\2\1", text) == plain.sub(r"\2\1", text)
    assert (words.pattern, words.flags, words.groups) == (plain.pattern, plain.flags, 2)
