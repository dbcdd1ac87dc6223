"""Secrets become placeholders that keep their kind."""

from __future__ import annotations

import json
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.base.redact import contains_secret, redact

BODY = "\n".join(["MIIEowIBAAKCAQEAu1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0gun"] * 4)
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\nq83vEjRWeJA=\n-----END RSA PRIVATE KEY-----"
ENCRYPTED = PEM.replace(
    "KEY-----\nMII", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES,0F\n\nMII"
)
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4fwpMeJf36"

SECRETS = {
    "anthropic_key": "sk-ant-api03-Zm9vYmFy_quux-1234567890",
    "openai_key": "sk-proj-a1b2c3d4e5f6g7h8i9j0",
    "github_token": "ghp_0123456789abcdefABCDEF0123456789abcd",
    "aws_key_id": "AKIAIOSFODNN7EXAMPLE",
    "slack_token": "xoxb-1234567890-abcdefghij",
    "google_key": "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "jwt": JWT,
    "private_key": PEM,
}


@pytest.mark.parametrize(("kind", "secret"), SECRETS.items(), ids=list(SECRETS))
def test_a_secret_becomes_a_placeholder_of_its_kind(kind, secret):
    text = f"before {secret} after"
    assert redact(text) == f"before [REDACTED:{kind}] after"
    assert contains_secret(text) is True
    assert contains_secret(redact(text)) is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gho_0123456789abcdefABCD.", "[REDACTED:github_token]."),
        ("github_pat_11ABCDEFG0_abcdefghij", "[REDACTED:github_token]"),
        ("ASIAIOSFODNN7EXAMPLE", "[REDACTED:aws_key_id]"),
        ("postgres://u:p@h/db", "postgres://[REDACTED:url_credentials]@h/db"),
        ("see http://a:p@ss@host:1/x", "see http://[REDACTED:url_credentials]@host:1/x"),
        (
            "https://0123456789abcdefghij@git.example/r",
            "https://[REDACTED:url_credentials]@git.example/r",
        ),
        (f"Authorization: Bearer {JWT}", "Authorization: Bearer [REDACTED:jwt]"),
        (
            "authorization: bearer 9f8e7d6c5b4a3f2e",
            "authorization: bearer [REDACTED:authorization]",
        ),
        ("Basic dXNlcjpwYXNzd29yZA==", "Basic [REDACTED:authorization]"),
        ("password: hunter2", "password: [REDACTED:secret]"),
        ("DB_PASSWORD=xK9mQ2pL rest", "DB_PASSWORD=[REDACTED:secret] rest"),
        ("x: password=ab:cd1234f", "x: password=[REDACTED:secret]"),
        ("pwd := 'q8w7e6r5'", "pwd := '[REDACTED:secret]'"),
        ('apiKey => "CorrectHorse"', 'apiKey => "[REDACTED:secret]"'),
        ("access-key=Zm9vYmFy1234", "access-key=[REDACTED:secret]"),
        ('{"token": "Tr0ub4dor&3"}', '{"token": "[REDACTED:secret]"}'),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "aws_secret_access_key = [REDACTED:secret]",
        ),
    ],
    ids=lambda value: value[:24],
)
def test_other_spellings_are_found(text, expected):
    assert redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "the key is in the drawer; the token ring is old",
        "tokens: 123456",
        "token_count=987654",
        "max_tokens = 4096",
        "password is required",
        "password: required",
        "secretary: Mary01",
        "token = get_token()",
        "api_key=settings.API_KEY",
        "api_key: ${API_KEY}",
        "key_file: ~/.ssh/id_rsa",
        "def login(password: Optional[str] = None)",
        "sk-learn-is-a-nice-library-too",
        "task-management-system-2024-edition",
        "basic understanding-of-things",
        "https://example.com:8080/path?mail=a@b.c",
        "git@github.com:owner/repo.git",
        "eyJust.a.word",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "",
    ],
    ids=lambda value: value[:24],
)
def test_ordinary_text_stays_the_same_object(text):
    assert redact(text) is text
    assert contains_secret(text) is False


@pytest.mark.parametrize("block", [PEM, ENCRYPTED, PEM.replace("RSA ", ""), json.dumps(PEM)])
def test_a_private_key_goes_as_a_whole_and_in_halves(block):
    assert "MII" not in redact(block)
    for cut in range(20, len(block) - 20, 37):
        for half in (block[:cut], block[cut:]):
            left = [
                line for line in redact(half).replace("\\n", "\n").splitlines() if "gun" in line
            ]
            marked = "BEGIN" in half[:40] or "-----END RSA PRIVATE KEY-----" in half
            assert not marked or len(left) <= 1


def test_a_key_in_one_place_leaves_the_text_around_it():
    text = f"first\n{PEM}\nmiddle\n{PEM}\nlast"
    placeholder = "[REDACTED:private_key]"
    assert redact(text) == f"first\n{placeholder}\nmiddle\n{placeholder}\nlast"


def test_a_key_header_without_its_end_takes_only_key_lines_with_it():
    text = f"-----BEGIN PRIVATE KEY-----\n{BODY}\nand then we went home"
    assert redact(text) == "[REDACTED:private_key]\nand then we went home"


_noise = st.text(string.ascii_letters + string.digits + " \n:=\"'/.@_-", max_size=30)


@given(
    st.lists(
        st.tuples(_noise, st.sampled_from([*SECRETS.values(), "://u:p@h", "password=hunter2x"])),
        max_size=6,
    ),
    _noise,
)
def test_redacting_twice_is_redacting_once(parts, end):
    text = "".join(noise + secret for noise, secret in parts) + end
    once = redact(text)
    assert redact(once) == once
    assert contains_secret(text) is (once != text)


@given(st.sampled_from(sorted(SECRETS.items())), _noise, _noise)
def test_a_secret_that_stands_as_a_word_is_found_in_any_surroundings(secret, before, after):
    kind, value = secret
    redacted = redact(f"{before} {value} {after}")
    assert value not in redacted
    assert f"[REDACTED:{kind}]" in redacted or "[REDACTED:secret]" in redacted


@given(st.text(max_size=200))
def test_any_text_can_be_redacted(text):
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "unit",
    [
        "eyJ",
        "sk-",
        "sk-ant-",
        "-----BEGIN PRIVATE KEY-----\n",
        "QUJD" * 12 + "\n",
        "http://",
        "password=a,",
        "bearer ",
        "a:b=",
        "://:",
        "token\"'",
        "ghp_",
    ],
)
def test_time_grows_with_the_text_and_no_faster(unit):
    text = unit * (200_000 // len(unit)) + "-----END PRIVATE KEY-----"
    started = time.process_time()
    redact(text)
    assert time.process_time() - started < 4


@pytest.mark.parametrize("before", ["\n", "\t", "\r", "\b", "é", "密钥", "\\", "/"])
def test_a_key_after_an_escape_of_json_or_a_letter_of_another_script_is_found(before):
    key = "sk-ant-api03-Zk3vQ9xT7mN2pL5wR8yB1cF4"
    for text in (before + key, json.dumps({"a": before + key})):
        assert "Zk3vQ9xT7mN2pL5wR8yB1cF4" not in redact(text)
    bearer = json.dumps(
        {"a": f"{before} Bearer Zk3vQ9xT7mN2pL5wR8yB1cF4", "b": "\nBearer Zk3vQ9xT7mN2"}
    )
    assert "Zk3vQ9" not in redact(bearer)
