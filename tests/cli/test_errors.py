"""A wrong thing asked of each command: one line that a person can act on, and the exit code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.base.paths import default_database
from agent.cli.app import COMMANDS
from hermes_state import SessionDB
from tests.cli.conftest import Hermes, Ran

SESSION = "20261130_144000_abc123"

WRONG: list[tuple[list[str], int, str]] = [
    (["sesions"], 2, "no such command 'sesions'; did you mean 'sessions'? see 'hermes --help'"),
    (
        ["--verbose"],
        2,
        "no such option: --verbose (Possible options: --version); see 'hermes --help'",
    ),
    (["pins", "list", "Nobody"], 2, "no session 'Nobody'; see `hermes sessions list`"),
    (["chat", "-q"], 2, "option '-q' requires an argument; see 'hermes chat --help'"),
    (["chat", "-q", " "], 2, "-q ' ' has no text; give the message to send"),
    (
        ["chat", "--session", "Nobody"],
        2,
        "no session 'Nobody'; see `hermes sessions list`",
    ),
    (
        ["chat", "--session", SESSION, "--continue"],
        2,
        "--session and --continue both name a session; give one of them",
    ),
    (
        ["chat", "--api-mode", "morse"],
        2,
        (
            "model.api_mode 'morse' (command line) is unknown; set it to one of: "
            "chat_completions, responses, anthropic_messages, codex_app_server, local"
        ),
    ),
    (
        ["chat", "--model", "m", "-q", "hi"],
        2,
        (
            "model.name 'm' is set but model.base_url is not; set model.base_url to the endpoint, "
            "such as 'https://host/v1'"
        ),
    ),
    (["sessions"], 2, "missing command; see 'hermes sessions --help'"),
    (
        ["sessions", "shw"],
        2,
        "no such command 'shw'; did you mean 'show'? see 'hermes sessions --help'",
    ),
    (
        ["sessions", "list", "--limit", "0"],
        2,
        (
            "invalid value for '--limit': Input should be greater than or equal to 1; "
            "see 'hermes sessions list --help'"
        ),
    ),
    (["sessions", "show"], 2, "missing argument 'SESSION'; see 'hermes sessions show --help'"),
    (
        ["sessions", "show", "Nobody"],
        2,
        "no session 'Nobody'; see `hermes sessions list`",
    ),
    (["sessions", "search", " "], 2, "the search ' ' holds no word; give one"),
    (
        ["sessions", "rename", SESSION, "Taken"],
        2,
        "session 'other' has the title 'Taken' already; choose another",
    ),
    (
        ["sessions", "delete", SESSION],
        2,
        f"session '{SESSION}' would be deleted for good and nobody can be asked; add --yes",
    ),
    (
        ["sessions", "fork", SESSION, "--rows-to", "0"],
        2,
        (
            "invalid value for '--rows-to': Input should be greater than or equal to 1; "
            "see 'hermes sessions fork --help'"
        ),
    ),
    (
        ["sessions", "fork", SESSION, "--title", "Taken"],
        2,
        "session 'other' has the title 'Taken' already; choose another",
    ),
    (
        ["sessions", "fork", "other"],
        2,
        "session 'other' has no row to fork; send a message first",
    ),
    (["sessions", "export", "Nobody"], 2, "no session 'Nobody'; see `hermes sessions list`"),
    (
        ["sessions", "import", "nowhere.jsonl"],
        2,
        "cannot read 'nowhere.jsonl': No such file or directory; choose another",
    ),
    (
        ["sessions", "import", __file__],
        2,
        (
            f"cannot import {__file__!r}: line 1: this is no export of `hermes sessions export`; "
            'its first line would say "format": "hermes-continuum"'
        ),
    ),
    (
        ["recall", SESSION],
        2,
        'recall takes a query, or rows like "17" or "40-62"; given: neither',
    ),
    (
        ["recall", SESSION, "--rows", "9-3"],
        2,
        "rows '9-3' is empty; rows count from 1, the smaller number first",
    ),
    (["recall", SESSION, "--rows", "40"], 2, "this conversation has no row 40"),
    (
        ["recall", SESSION, "word", "--budget", "9"],
        2,
        (
            "invalid value for '--budget': Input should be greater than or equal to 400; "
            "see 'hermes recall --help'"
        ),
    ),
    (
        ["compact", "Nobody"],
        2,
        "no session 'Nobody'; see `hermes sessions list`",
    ),
    (
        ["compactions", "list", "Nobody"],
        2,
        "no session 'Nobody'; see `hermes sessions list`",
    ),
    (
        ["compactions", "show", "ffff"],
        2,
        "no compaction pass 'ffff'; see `hermes compactions list`",
    ),
    (
        ["compactions", "diff", "ffff"],
        2,
        "no compaction pass 'ffff'; see `hermes compactions list`",
    ),
    (
        ["compactions", "undo", "Nobody"],
        2,
        "no session 'Nobody'; see `hermes sessions list`",
    ),
    (
        ["compactions", "undo", SESSION],
        2,
        f"session '{SESSION}' has no compaction in force to undo",
    ),
    (
        ["compactions", "undo", SESSION, "--pass", "ffff"],
        2,
        "no compaction pass 'ffff'; see `hermes compactions list`",
    ),
    (
        ["config", "get", "model.nam"],
        2,
        "unknown settings key 'model.nam'; did you mean 'model.name'?",
    ),
    (
        ["config", "set", "tools.approval", "maybe"],
        2,
        "tools.approval 'maybe' is unknown; set it to one of: ask, auto, off",
    ),
    (
        ["config", "set", "model.name"],
        2,
        "missing argument 'VALUE'; see 'hermes config set --help'",
    ),
    (
        ["doctor", "--fix"],
        2,
        "no such option: --fix; see 'hermes doctor --help'",
    ),
    (["local"], 2, "missing command; see 'hermes local --help'"),
    (
        ["local", "instal"],
        2,
        "no such command 'instal'; did you mean 'install'? see 'hermes local --help'",
    ),
    (
        ["serve", "--port", "99999"],
        2,
        "server.port 99999 (command line) is out of range; set it to 0 to 65535",
    ),
    (["proxy"], 2, "missing option '--upstream'; see 'hermes proxy --help'"),
    (
        ["proxy", "--upstream", "host/v1"],
        2,
        "--upstream 'host/v1' is no http or https address; give one such as 'https://host/v1'",
    ),
    (
        ["demo", "fast"],
        2,
        "got unexpected extra argument(s) (fast); see 'hermes demo --help'",
    ),
]


@pytest.fixture(autouse=True)
def _two_sessions() -> Iterator[None]:
    store = SessionDB(db_path=default_database())
    store.create_session(SESSION, "cli")
    store.append_message(SESSION, "user", "a word")
    store.create_session("other", "cli", title="Taken")
    yield
    store.close()


@pytest.mark.parametrize(("words", "code", "text"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_use_is_one_line_with_what_to_do(
    words: list[str], code: int, text: str, hermes: Hermes
) -> None:
    assert hermes(*words) == Ran(code, "", f"hermes: {text}\n")


def test_no_command_is_left_out_of_the_table() -> None:
    assert {words[0] for words, _code, _text in WRONG if words[0] in COMMANDS} == set(COMMANDS)
