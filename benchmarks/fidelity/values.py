"""Values that are drawn anew for each session: ports, hosts, dates, ids."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable

_HOSTS = ("amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heron", "iris", "juno")
_FOLDERS = ("var/dumps", "home/dev/out", "srv/backup", "tmp/report", "opt/export")
_ENDINGS = ("bin", "tar.gz", "csv", "md", "core", "lock")
_MONTHS = (
    "January February March April May June July August September October November December"
).split()
_DATES = {
    "en": "{day} {name} {year}",
    "de": "{day:02}.{month:02}.{year}",
    "fr": "{day:02}/{month:02}/{year}",
    "es": "{day:02}/{month:02}/{year}",
    "zh": "{year}年{month}月{day}日",
    "ja": "{year}年{month}月{day}日",
}
_THOUSANDS = {"de": ".", "fr": " ", "es": "."}


def draw(rng: random.Random, kind: str, language: str) -> str:
    """Return a value of a kind as people of that language write it."""
    if kind == "date":
        month = rng.randrange(12)
        return _DATES[language].format(
            day=rng.randrange(1, 29),
            month=month + 1,
            name=_MONTHS[month],
            year=rng.randrange(2027, 2030),
        )
    if kind == "money":
        thousands = rng.randrange(11, 980)
        return f"{thousands}{_THOUSANDS.get(language, ',')}{rng.randrange(10) * 100 + 50:03}"
    return _PLAIN[kind](rng)


def look_alike(rng: random.Random, value: str) -> str:
    """Return `value` with one of its digits replaced, never the first sign of it."""
    places = [place for place, sign in enumerate(value) if sign.isdigit() and place]
    if not places:
        return value[:-1] + rng.choice("0123456789")
    place = rng.choice(places)
    other = rng.choice([sign for sign in "123456789" if sign != value[place]])
    return value[:place] + other + value[place + 1 :]


def _hex(rng: random.Random, digits: int) -> str:
    return f"{rng.getrandbits(digits * 4):0{digits}x}"


def _path(rng: random.Random) -> str:
    name = f"{rng.choice(_HOSTS)}-{rng.randrange(1000, 9999)}"
    return f"/{rng.choice(_FOLDERS)}/{name}.{rng.choice(_ENDINGS)}"


_PLAIN: dict[str, Callable[[random.Random], str]] = {
    "port": lambda rng: str(rng.randrange(2049, 29999)),
    "host": lambda rng: f"{rng.choice(_HOSTS)}{rng.randrange(100, 999)}.corp.test",
    "int": lambda rng: str(rng.randrange(11, 97)),
    "hour": lambda rng: str(rng.randrange(18, 23)),
    "ver": lambda rng: f"{rng.randrange(2, 25)}.{rng.randrange(1, 30)}.{rng.randrange(10)}",
    "ip": lambda rng: f"10.{rng.randrange(10, 99)}.{rng.randrange(10, 99)}.{rng.randrange(11, 99)}",
    "num": lambda rng: str(rng.randrange(310_000, 989_999)),
    "sha": lambda rng: _hex(rng, 12),
    "hex": lambda rng: _hex(rng, 32),
    "uuid": lambda rng: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
    "ticket": lambda rng: f"{rng.choice(('OPS', 'WEB', 'PAY', 'APP'))}-{rng.randrange(1200, 9800)}",
    "path": _path,
}
