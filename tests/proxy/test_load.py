"""The benchmark of the proxy: what its client measures."""

from __future__ import annotations

from agent.testing.stub_reply import Reply
from agent.testing.stub_server import StubModelServer
from benchmarks.server.load import Load, Measured, measure
from benchmarks.server.proxy import history


def test_each_client_goes_on_with_its_own_conversation() -> None:
    opening = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "noted"}]
    with StubModelServer(then=Reply(text="noted")) as stub:
        load = Load(2, 3, lambda number, place: history(opening, number, place))
        measured = measure(
            stub.base_url, load, lambda number: {"authorization": f"Bearer key-{number}"}
        )
    assert len(measured.first_byte_s) == 6
    assert [request.refusal for request in stub.requests] == [""] * 6
    by_key: dict[str, list[int]] = {}
    for request in stub.requests:
        by_key.setdefault(request.headers["authorization"], []).append(len(request.messages))
    assert by_key == {"Bearer key-0": [3, 5, 7], "Bearer key-1": [3, 5, 7]}


def test_percentiles_are_of_sorted_times() -> None:
    measured = Measured([n / 1000 for n in range(1, 101)], 2.0)
    assert (measured.per_second, measured.median_ms) == (50.0, 50.5)
    assert [measured.percentile_ms(share) for share in (0.5, 0.95, 0.99)] == [51.0, 96.0, 100.0]
