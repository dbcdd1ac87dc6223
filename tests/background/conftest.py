from __future__ import annotations

from tests.field_reports.conftest import open_bench

__all__ = ["open_bench"]
