"""Who may ask: token, Host and Origin."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from agent.base.errors import SettingsError
from agent.server.faults import Fault
from agent.server.guard import Door, server_token

DOOR = Door(
    host="127.0.0.1",
    hosts=("box.example",),
    origins=("https://chat.example",),
    token="s3cret",
    open_paths=("/healthz",),
)


def status_of(door: Door, path: str = "/v1/models", **headers: str) -> int:
    """Return what the door answers: 200 lets in."""
    try:
        door.check(path, Headers(headers))
    except Fault as fault:
        return fault.answer.status
    return 200


def test_the_token_is_made_once_and_is_for_its_owner_only(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    first = server_token(home)
    assert len(first) >= 32
    assert server_token(home) == first
    assert [path.name for path in home.iterdir()] == ["server.token"]
    assert stat.S_IMODE((home / "server.token").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_a_token_file_that_cannot_be_used_is_told_in_one_line(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "server.token").write_bytes(content)
    with pytest.raises(SettingsError) as raised:
        server_token(tmp_path)
    assert "server.token" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("Bearer s3cret", 200),
        ("bearer s3cret", 200),
        ("Bearer s3cre", 401),
        ("Bearer s3cret2", 401),
        ("Basic s3cret", 401),
        ("s3cret", 401),
        ("Bearer \u00e9", 401),
        ("", 401),
    ],
)
def test_only_the_right_token_lets_in(given: str, status: int) -> None:
    headers = {"authorization": given} if given else {}
    assert status_of(DOOR, host="localhost", **headers) == status


def test_an_open_path_needs_no_token() -> None:
    assert status_of(DOOR, "/healthz", host="localhost:8787") == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:8787", 200),
        ("[::1]:8787", 200),
        ("LOCALHOST:1", 200),
        ("box.example:80", 200),
        ("evil.example", 403),
        ("10.0.0.1", 403),
        ("localhost.evil.example", 403),
        ("[", 403),
        ("", 403),
    ],
)
def test_a_name_that_was_made_to_lead_here_is_refused(host: str, status: int) -> None:
    assert status_of(DOOR, "/healthz", host=host) == status


def test_a_server_on_every_address_takes_addresses_but_no_names() -> None:
    door = Door(host="0.0.0.0")
    assert status_of(door, host="10.0.0.1:8787") == 200
    assert status_of(door, host="evil.example") == 403


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8787", 200),
        ("https://localhost:8787", 200),
        ("https://chat.example", 200),
        ("http://localhost:9999", 403),
        ("https://evil.example", 403),
        ("null", 403),
    ],
)
def test_a_page_of_another_site_is_refused(origin: str, status: int) -> None:
    assert status_of(DOOR, "/healthz", host="localhost:8787", origin=origin) == status
