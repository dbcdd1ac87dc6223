"""Reads the keys of a YAML file with their lines, and sets one without touching the rest.

Scalars stay text: the reader of a key knows its type, so `off` or `4.10` mean what was written.
Which names are sections is the caller's knowledge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from agent.base.errors import SettingsError
from agent.base.record import dataclass

if TYPE_CHECKING:
    import yaml

IsSection = Callable[[str], bool]

_UNSET = ("", "~", "null")
_UNPRINTABLE = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")
"""What JSON leaves as it is and YAML refuses or takes for the end of a line."""


@dataclass(frozen=True)
class Leaf:
    """What stands at a key: text, a list or a mapping of texts, None for nothing; and its line."""

    value: Any
    line: int


def read_leaves(text: str, name: str, is_section: IsSection) -> dict[str, Leaf]:
    """Return what each dotted key of a YAML text is set to; `name` is the file's, for errors.

    Raises: SettingsError with the line when it is not YAML, its top is no mapping, or a key stands
    twice.
    """
    root = _parse(text, name)
    _refuse_twins(root, name, "")
    return dict(_leaves(root, "", is_section))


def set_leaf(text: str, name: str, is_section: IsSection, key: str, value: Any) -> str:
    """Return `text` with `key` set to a JSON value; everything else stays as it was.

    Raises: SettingsError when `text` is broken or written in a form that cannot be edited so.
    """
    kept = _values(text, name, is_section)
    shown = _UNPRINTABLE.sub(_escape, json.dumps(value, ensure_ascii=False))
    changed = _edited(text, _parse(text, name), key, shown)
    try:
        found = _values(changed, name, is_section)
    except SettingsError:
        found = {}
    wanted = value if isinstance(value, str) else parse_value(shown)
    if found != {**kept, key: wanted}:
        raise SettingsError(f"{name!r} cannot be edited in place; set {key} in it by hand")
    return changed


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _values(text: str, name: str, is_section: IsSection) -> dict[str, Any]:
    leaves = read_leaves(text, name, is_section)
    return {key: leaf.value for key, leaf in leaves.items() if leaf.value is not None}


def parse_value(text: str) -> Any:
    """Return the texts and lists of texts that a YAML or JSON value holds. Raises: ValueError."""
    import yaml

    try:
        # The base loader makes nothing but str, list and dict.
        return yaml.load(text, Loader=yaml.BaseLoader)  # nosec B506
    except yaml.YAMLError as error:
        raise ValueError(f"{text!r} is not YAML") from error


def _parse(text: str, name: str) -> yaml.MappingNode | None:
    """Return the tree of the text, None when nothing is in it."""
    import yaml

    try:
        loader = yaml.BaseLoader(text)
        node = loader.get_single_node()
        if node is not None:
            loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" line {mark.line + 1}" if mark else ""
        raise SettingsError(f"{name!r}{where} is not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{name!r} is not YAML: {' '.join(str(error).split())}") from error
    if node is None or _is_unset(node):
        return None
    if not isinstance(node, yaml.MappingNode):
        kind = "a list" if isinstance(node, yaml.SequenceNode) else "plain text"
        raise SettingsError(
            f"{name!r} line {node.start_mark.line + 1} holds {kind}; write sections, such as "
            "'model:', with their keys below"
        )
    return node


def _refuse_twins(node: yaml.Node | None, name: str, prefix: str) -> None:
    """Raise SettingsError for a key that stands twice in one mapping, at any depth."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_twins(item, name, prefix)
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        full, line = f"{prefix}{key.value}", key.start_mark.line + 1
        if full in lines:
            raise SettingsError(
                f"{name!r} line {line} sets {full}, which line {lines[full]} sets already; keep "
                "one of them"
            )
        lines[full] = line
        _refuse_twins(value, name, f"{full}.")


def _leaves(
    node: yaml.MappingNode | None, prefix: str, is_section: IsSection
) -> Iterator[tuple[str, Leaf]]:
    import yaml

    for name, value in node.value if node is not None else ():
        key = f"{prefix}{name.value}"
        if isinstance(value, yaml.MappingNode) and is_section(key):
            yield from _leaves(value, f"{key}.", is_section)
        else:
            content = None if _is_unset(value) else _content(value)
            yield key, Leaf(content, name.start_mark.line + 1)


def _is_unset(node: yaml.Node) -> bool:
    import yaml

    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value in _UNSET


def _content(node: yaml.Node) -> Any:
    import yaml

    if isinstance(node, yaml.MappingNode):
        return {str(name.value): _content(value) for name, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_content(item) for item in node.value]
    return node.value


def _edited(text: str, root: yaml.MappingNode | None, key: str, shown: str) -> str:
    import yaml

    names = key.split(".")
    node: yaml.Node | None = root
    depth = 0
    while isinstance(node, yaml.MappingNode) and depth < len(names):
        found = next((value for name, value in node.value if name.value == names[depth]), None)
        if found is None:
            break
        node = found
        depth += 1
    missing = names[depth:]
    if node is None or (node is root and not isinstance(node, yaml.MappingNode)):
        return _appended(text, missing, shown)
    if isinstance(node, yaml.MappingNode) and node.value and missing:
        return _put_first(text, node, missing, shown)
    return _replaced(text, node, depth, missing, shown)


def _appended(text: str, names: list[str], shown: str) -> str:
    """Return the text with the key on lines of its own at the end."""
    start = "\n" if text and not text.endswith("\n") else ""
    return f"{text}{start}{_nested(names, shown, 0)}\n"


def _put_first(text: str, section: yaml.MappingNode, names: list[str], shown: str) -> str:
    """Return the text with the key before the first one of its section."""
    mark = section.value[0][0].start_mark
    between = ", " if section.flow_style else "\n" + " " * mark.column
    entry = _nested(names, shown, mark.column).lstrip()
    return text[: mark.index] + entry + between + text[mark.index :]


def _replaced(text: str, node: yaml.Node, depth: int, missing: list[str], shown: str) -> str:
    """Return the text with a node's value replaced; an empty section gets its first key."""
    begin, end = node.start_mark.index, node.end_mark.index
    fresh = f"\n{_nested(missing, shown, 2 * depth)}" if missing else shown
    before = "" if missing or text[begin - 1 : begin].isspace() else " "
    after = "\n" if text[begin:end].endswith("\n") else ""
    return text[:begin] + before + fresh + after + text[end:]


def _nested(names: list[str], shown: str, column: int) -> str:
    """Return `a:`, `  b:`, `    c: shown` as lines that begin at `column`."""
    lines = [" " * (column + 2 * level) + f"{name}:" for level, name in enumerate(names)]
    return "\n".join(lines) + f" {shown}"
