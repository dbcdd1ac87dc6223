from __future__ import annotations

import pytest

from agent.providers.endpoint import Endpoint


@pytest.mark.parametrize(
    ("base_url", "path", "sent"),
    [
        ("https://host/v1", "/models", "https://host/v1/models"),
        ("https://host:8443/v1/", "/models", "https://host:8443/v1/models"),
        ("https://user:pw@host/v1", "/models", "https://host/v1/models"),
        ("https://bücher.example/läufe/v1", "/m", "https://xn--bcher-kva.example/l%C3%A4ufe/v1/m"),
        ("http://[::1]:8000/a b/%20", "/m", "http://[::1]:8000/a%20b/%20/m"),
    ],
)
def test_an_address_is_written_in_the_characters_of_a_url(base_url, path, sent):
    assert Endpoint(base_url, "", "route").url(path) == sent


@pytest.mark.parametrize(
    ("base_url", "key", "header"),
    [
        ("https://host/v1", "", ""),
        ("https://host/v1", "k", "Bearer k"),
        ("https://user:p%40w@host/v1", "", "Basic dXNlcjpwQHc="),
        ("https://user:pw@host/v1", "k", "Bearer k"),
    ],
)
def test_a_key_goes_before_a_password_of_the_address(base_url, key, header):
    assert Endpoint(base_url, key, "route").authorization == header
