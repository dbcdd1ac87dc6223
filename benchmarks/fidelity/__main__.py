"""`python -m benchmarks.fidelity`: see `run.py`."""

from __future__ import annotations

import sys

from benchmarks.fidelity.run import main

if __name__ == "__main__":
    sys.exit(main())
