"""Realistic transcripts from a seed: same seed, same bytes, always valid for a strict provider.

A turn is a user's request, rounds of parallel tool calls with their results, and an answer. Sizes
follow measured agent sessions: about 1.6 KB a message on average, results of 200 B to 20 KB.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable

from agent.base.messages import Message

MIN_RESULT_CHARS = 200
MAX_RESULT_CHARS = 20_000

_WORDS = (
    "the service returns an error when a second worker opens this queue while its first request "
    "still waits for a lock so we should check timeout order before changing any retry setting "
    "in config and keep every test green after moving parser code into one module with clear names"
).split()
_PARTS = ("api", "auth", "billing", "cache", "cli", "core", "db", "jobs", "queue", "search", "web")
_NOUNS = ("client", "config", "handler", "index", "loader", "model", "parser", "router", "store")
_VERBS = ("Fix", "Explain", "Refactor", "Add a test for", "Review", "Speed up", "Document", "Find")
_CJK = (
    "请检查数据库连接超时的原因并修改配置文件",
    "キャッシュの有効期限を設定してテストを実行してください",
    "사용자 인증 모듈에서 오류가 발생하는 이유를 설명해 주세요",
    "这个函数在并发情况下会返回错误的结果",
    "ログファイルに警告が記録されています",
)
_LEVELS = ("DEBUG", "INFO", "INFO", "INFO", "WARNING", "ERROR")


def transcript(
    seed: int, *, messages: int = 100, cjk: float = 0.1, base64_share: float = 0.05
) -> list[Message]:
    """Return exactly `messages` messages, oldest first, without a system message.

    `cjk` is the share of requests and answers in Chinese, Japanese or Korean, `base64_share`
    the share of tool results that are base64. The last turn is cut short to end validly: with an
    answer, or with a request when one message is left. Raises: ValueError for a negative count.
    """
    if messages < 0:
        raise ValueError(f"messages must not be negative, not {messages!r}")
    source = _Source(random.Random(seed), cjk, base64_share)
    made: list[Message] = []
    while len(made) < messages:
        made.extend(source.turn(messages - len(made)))
    return made


class _Source:
    """Draws turns from one random generator."""

    def __init__(self, rng: random.Random, cjk: float, base64_share: float) -> None:
        self._rng = rng
        self._cjk = cjk
        self._base64_share = base64_share
        self._calls = 0

    def turn(self, room: int) -> list[Message]:
        """Return one turn of at most `room` messages."""
        messages: list[Message] = [{"role": "user", "content": self._request()}]
        if room == 1:
            return messages
        for _ in range(self._below(6)):
            parallel = 1 + self._below(3) * self._below(2)
            if len(messages) + 1 + parallel + 1 > room:
                break
            messages.extend(self._round(parallel))
        messages.append({"role": "assistant", "content": self._prose(2 + self._below(6))})
        return messages

    def _round(self, parallel: int) -> list[Message]:
        calls, results = [], []
        for _ in range(parallel):
            self._calls += 1
            call_id = f"call_{self._calls}"
            name, arguments, content = self._tool_use()
            function = {"name": name, "arguments": json.dumps(arguments)}
            calls.append({"id": call_id, "type": "function", "function": function})
            results.append({"role": "tool", "tool_call_id": call_id, "content": content})
        text = self._prose(1) if self._below(2) else None
        return [{"role": "assistant", "content": text, "tool_calls": calls}, *results]

    def _request(self) -> str:
        if self._rng.random() < self._cjk:
            return "\n".join(self._rng.choices(_CJK, k=1 + self._below(3)))
        opening = f"{self._pick(_VERBS)} {self._path()}. "
        return opening + self._prose(1 + self._below(3))

    def _prose(self, sentences: int) -> str:
        if self._rng.random() < self._cjk:
            return "。".join(self._rng.choices(_CJK, k=sentences)) + "。"
        return " ".join(self._sentence() for _ in range(sentences))

    def _sentence(self) -> str:
        return " ".join(self._rng.choices(_WORDS, k=6 + self._below(14))).capitalize() + "."

    def _tool_use(self) -> tuple[str, dict[str, object], str]:
        """Return a tool's name, its arguments and its result."""
        chars = int(MIN_RESULT_CHARS * 100 ** (self._rng.random() ** 1.65))
        path = self._path()
        if self._rng.random() < self._base64_share:
            raw = self._rng.randbytes(chars * 3 // 4)
            return "read_file", {"path": f"{path}.png"}, base64.b64encode(raw).decode()
        uses: tuple[tuple[str, dict[str, object], Callable[[], str]], ...] = (
            ("shell", {"command": f"tail -n 200 {path}.log"}, self._log_line),
            ("read_file", {"path": path, "offset": self._below(400)}, self._code_line),
            ("search_files", {"pattern": self._pick(_NOUNS), "path": "src"}, self._hit_line),
            ("list_files", {"path": "src", "recursive": True}, self._listing_line),
            ("fetch", {"url": f"http://localhost/{path}", "limit": chars // 100}, self._record),
        )
        name, arguments, line = uses[self._below(len(uses))]
        return name, arguments, _fill(line, chars)

    def _log_line(self) -> str:
        at = self._below(86_400)
        clock = f"{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}.{self._below(1000):03}"
        words = " ".join(self._rng.choices(_WORDS, k=8))
        request = f"{self._below(1 << 30):08x}"
        return f"2026-11-30T{clock} {self._pick(_LEVELS):7} [{request}] {self._name()}: {words}"

    def _code_line(self) -> str:
        indent = "    " * self._below(4)
        left, right = self._pick(_NOUNS), self._pick(_PARTS)
        return (
            f"{indent}{left}_{self._below(100)} = {right}.{self._name()}(timeout={self._below(60)})"
        )

    def _hit_line(self) -> str:
        return f"{self._path()}:{self._below(900)}:{self._code_line()}"

    def _listing_line(self) -> str:
        size, day = self._below(90_000), 1 + self._below(30)
        return f"-rw-r--r-- 1 dev dev {size:>6} Nov {day:>2} {self._path()}"

    def _record(self) -> str:
        return (
            f'{{"id": {self._below(1 << 20)}, "name": "{self._name()}", '
            f'"active": {"true" if self._below(2) else "false"}, "score": 0.{self._below(1000)}}}'
        )

    def _path(self) -> str:
        return f"src/{self._pick(_PARTS)}/{self._name()}_{self._below(100)}.py"

    def _name(self) -> str:
        return f"{self._pick(_PARTS)}_{self._pick(_NOUNS)}"

    def _pick(self, choices: tuple[str, ...]) -> str:
        return choices[int(self._rng.random() * len(choices))]

    def _below(self, limit: int) -> int:
        return int(self._rng.random() * limit)


def _fill(line: Callable[[], str], chars: int) -> str:
    """Return lines of about `chars` characters together, cut at the largest size."""
    lines: list[str] = []
    size = 0
    while size <= chars:
        lines.append(line())
        size += len(lines[-1]) + 1
    return "\n".join(lines)[:MAX_RESULT_CHARS]
