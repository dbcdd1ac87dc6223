"""Checks how the code is laid out: floors, cycles, places of imports, sizes. `make check` runs it.

A file sits on the floor of the longest entry of `FLOORS` that names it or a folder above it. It
may import its own entry and lower floors, never its neighbours on the same floor.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FLOORS = {
    "agent.base": 0,
    "agent.sessions": 1,
    "agent.providers": 1,
    "agent.relay_runtime": 1,
    "agent.compaction_events": 1,
    "hermes_state": 2,
    "agent.tools": 2,
    "agent.auxiliary_client": 2,
    "agent.otel": 2,
    "agent.pass_events": 2,
    "agent.relay_compaction": 2,
    "agent.telemetry": 3,
    "agent.compaction": 4,
    "agent.conversation_compression": 5,
    "agent.agent_runtime_helpers": 5,
    "agent.turn_finalizer": 6,
    "agent.turn": 7,
    "run_agent": 8,
    "agent.settings": 8,
    "agent.tui": 9,
    "agent.server": 9,
    "agent.gateway": 9,
    "agent.testing": 9,
    "agent.cli": 10,
}
PRODUCT = ("agent", "run_agent.py", "hermes_state.py")
AROUND = ("tests", "scripts", "benchmarks")
LAZY = frozenset(
    "genai_prices httpcore2 httpx2 opentelemetry prompt_toolkit psutil pydantic pydantic_settings "
    "rich tenacity typer xllamacpp yaml zstandard "
    "asyncio hashlib importlib multiprocessing ssl urllib".split()
)
"""Packages that may be imported inside a function: each is optional, or slow to load and needed by
few of those who import its user."""

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 8

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Import:
    """One imported module, where it is written, and whether it stands inside a function."""

    name: str
    line: int
    inside: bool


@dataclass(frozen=True)
class Module:
    """One parsed file; `name` is its dotted name, `path` is relative to the root."""

    name: str
    path: str
    lines: int
    tree: ast.Module


def find_problems(root: Path) -> list[str]:
    """Return one line for each rule that a file below `root` breaks, by path and line."""
    product = list(_read(root, PRODUCT))
    names = {module.name for module in product}
    problems = [p for module in (*product, *_read(root, AROUND)) for p in _sizes(module)]
    graph: dict[str, list[str]] = {}
    for module in product:
        imports = list(_imports(module.tree))
        problems += _places(module, imports)
        targets = [(item, name) for item in imports if (name := _known(item, names))]
        problems += _directions(module, targets)
        # A cycle across entries needs an import upwards, which is told already.
        own = _entry(module.name)
        graph[module.name] = [name for _item, name in targets if _entry(name) == own]
    problems += [f"cycle: {' -> '.join(cycle)}" for cycle in _cycles(graph)]
    return sorted(problems)


def _read(root: Path, places: tuple[str, ...]) -> Iterator[Module]:
    for place in places:
        top = root / place
        for path in [top] if top.is_file() else sorted(top.rglob("*.py")):
            relative = path.relative_to(root)
            name = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
            text = path.read_text("utf-8")
            yield Module(name, str(relative), len(text.splitlines()), ast.parse(text))


def _sizes(module: Module) -> Iterator[str]:
    if module.lines > MAX_FILE_LINES:
        yield f"{module.path}:1: {module.lines} lines; at most {MAX_FILE_LINES}"
    for node in ast.walk(module.tree):
        if not isinstance(node, Function):
            continue
        where = f"{module.path}:{node.lineno}: {node.name}"
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > MAX_FUNCTION_LINES:
            yield f"{where} has {length} lines; at most {MAX_FUNCTION_LINES}"
        count = len(_parameters(node.args))
        if count > MAX_PARAMETERS:
            yield f"{where} has {count} parameters; at most {MAX_PARAMETERS}"


def _parameters(arguments: ast.arguments) -> list[str]:
    """Return the names of what a caller may pass; the bound object is not one of them."""
    positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    if positional[:1] in (["self"], ["cls"]):
        positional = positional[1:]
    others = [*arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return positional + [a.arg for a in others if a is not None]


def _imports(tree: ast.Module) -> Iterator[Import]:
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, Function)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, id(node) in inner)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                yield Import(f"{module}.{alias.name}", node.lineno, id(node) in inner)


def _places(module: Module, imports: list[Import]) -> Iterator[str]:
    if module.path.endswith("__init__.py") and module.tree.body:
        yield f"{module.path}:1: must stay empty; import from the module that has the name"
    for item in imports:
        where = f"{module.path}:{item.line}"
        if item.name.startswith("."):
            yield f"{where}: relative import of {item.name!r}; write the full name"
        elif item.inside and item.name.partition(".")[0] not in LAZY:
            yield f"{where}: {item.name!r} is imported inside a function; move it to the top"


def _known(item: Import, names: set[str]) -> str:
    """Return the module of the project that is imported, "" when it is somebody else's."""
    parent = item.name.rpartition(".")[0]
    return next((name for name in (item.name, parent) if name in names), "")


def _entry(name: str) -> str:
    """Return the entry of the table that a module belongs to, "" for none."""
    parts = name.split(".")
    tries = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((entry for entry in tries if entry in FLOORS), "")


def _directions(module: Module, targets: list[tuple[Import, str]]) -> Iterator[str]:
    own = _entry(module.name)
    if not own:
        if module.name != "agent":
            yield f"{module.path}:1: {module.name} is on no floor; add it to scripts/floors.py"
        return
    for item, name in targets:
        entry = _entry(name)
        if entry in (own, "") or FLOORS[entry] < FLOORS[own]:
            continue
        way = "sideways" if FLOORS[entry] == FLOORS[own] else "upwards"
        floors = f"floor {FLOORS[own]} uses floor {FLOORS[entry]}"
        yield f"{module.path}:{item.line}: imports {name!r} {way}: {floors}"


def _cycles(graph: dict[str, list[str]]) -> Iterator[list[str]]:
    """Yield each cycle that a depth-first walk closes, first module repeated at the end."""
    done: set[str] = set()

    def walk(name: str, trail: list[str]) -> Iterator[list[str]]:
        if name in trail:
            yield [*trail[trail.index(name) :], name]
        elif name not in done:
            for target in graph.get(name, ()):
                yield from walk(target, [*trail, name])
            done.add(name)

    for name in sorted(graph):
        yield from walk(name, [])


if __name__ == "__main__":
    found = find_problems(Path(__file__).resolve().parent.parent)
    print("\n".join(found) if found else "floors: all files in place")
    sys.exit(1 if found else 0)
