"""What any store must find, and in which order."""

from __future__ import annotations

import pytest

from agent.base.errors import UsageError
from agent.sessions.protocol import SessionStore
from agent.sessions.records import RowState
from agent.sessions.terms import scope_piece
from tests.sessions.steps import LARGE, SESSION, begin, contents, cover, mask, run_pass, summary


class SearchContract:
    def test_every_word_must_be_there_and_the_newest_comes_first(self, store: SessionStore) -> None:
        begin(store)
        for text in ("red apples", "green apples", "red cars", "apples, quite RED"):
            store.index_pending()
            store.append_message(SESSION, "user", text)
        assert contents([hit.message for hit in store.search("red apple")]) == [
            "apples, quite RED",
            "red apples",
        ]
        assert contents([hit.message for hit in store.search("apple", limit=1)]) == [
            "apples, quite RED"
        ]

    @pytest.mark.parametrize(
        ("text", "query", "is_found"),
        [
            ("the deployment failed", "ploy", True),
            ("the deployment failed", "DEPLOY", True),
            ("the deployment failed", '"deployment failed"', True),
            ("the deployment has failed", '"deployment failed"', False),
            ("the deployment failed", "deployment succeeded", False),
            ("abc and bcd", "abcd", False),
            ("port 5433 is open", "5433", True),
            ("東京の天気は晴れ", "天気", True),
            ("東京の天気は晴れ", "京の天気", True),
            ("東京の天気は晴れ", "気天", False),
            ("東京 天気", "京天", False),
            ("데이터베이스 오류", "오류", True),
            ("カタカナ", "タカ", True),
            ("Straße und Äpfel", "STRASSE äpfel", True),
            ("cafe\u0301 au lait", "caf\u00e9", True),
            ("go to x=1 now", "x= now", True),
            ("go to y now", "to go", True),
            ("go to y now", "to qq", False),
            ('say "hello" there', 'hello"', True),
            ("a 'quoted' AND word", "AND quoted", True),
            ("emoji 🎉🎉🎉 here", "🎉🎉🎉", True),
            ("a \ud800bc lone", "\ud800bc", True),
            ("nul a\x00bc", "a\x00bc", True),
        ],
    )
    def test_words_match_as_promised(
        self, store: SessionStore, text: str, query: str, is_found: bool
    ) -> None:
        begin(store)
        store.append_message(SESSION, "user", text)
        for _not_indexed_then_indexed in range(2):
            assert bool(store.search(query)) is is_found
            assert bool(store.search(query, session_id=SESSION)) is is_found
            store.index_pending()

    @pytest.mark.parametrize("query", ["", "  ", '""', '" "'])
    def test_an_empty_query_is_refused(self, store: SessionStore, query: str) -> None:
        with pytest.raises(UsageError, match="no word"):
            store.search(query)

    def test_tool_names_arguments_and_parts_are_searched(self, store: SessionStore) -> None:
        begin(store)
        call = {"name": "read_file", "arguments": '{"path": "/etc/hosts"}'}
        store.append(
            SESSION,
            [
                {"role": "user", "content": [{"type": "text", "text": "see this picture"}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "type": "function", "function": call}],
                },
                {"role": "tool", "tool_call_id": "c", "name": "read_file", "content": "localhost"},
            ],
        )
        store.index_pending()
        found = {
            query: [hit.message["_seq"] for hit in store.search(query)]
            for query in ("picture", "hosts", "read_file", "localhost")
        }
        assert found == {"picture": [1], "hosts": [2], "read_file": [3, 2], "localhost": [3]}

    def test_covered_and_masked_rows_are_found_and_summaries_are_not(
        self, store: SessionStore
    ) -> None:
        begin(store)
        rows = store.append(SESSION, [{"role": "user", "content": f"pear {n}"} for n in range(3)])
        mask(store, rows[2])
        cover(store, rows[:1], "pear pear")
        found = [(hit.message["content"], hit.state) for hit in store.search("pear")]
        assert found == [
            ("pear 2", RowState.MASKED),
            ("pear 1", RowState.LIVE),
            ("pear 0", RowState.COMPACTED),
        ]

    def test_a_search_can_be_kept_to_one_session(self, store: SessionStore) -> None:
        for session_id in ("a", "b"):
            store.create_session(session_id, "cli", title=f"Title {session_id}")
            store.append_message(session_id, "user", f"walnut {session_id}")
        store.index_pending()
        for query in ("walnut", "w"):
            hits = store.search(query, session_id="a")
            assert [(hit.session_id, hit.title, hit.snippet) for hit in hits] == [
                ("a", "Title a", "walnut a")
            ]

    def test_no_text_in_a_row_makes_it_a_hit_of_another_session(self, store: SessionStore) -> None:
        for session_id in ("a", "b"):
            store.create_session(session_id, "cli")
        for number in range(5):
            store.append_message("a", "user", f"walnut {scope_piece(number)}")
        store.index_pending()
        assert store.search("walnut", session_id="b") == []

    def test_the_inside_of_a_blob_is_found_and_shown_in_one_line(self, store: SessionStore) -> None:
        begin(store)
        text = LARGE[:100_000] + "\nthe hidden\tneedle is here\n" + LARGE[:100_000]
        store.append(SESSION, [{"role": "tool", "tool_call_id": "c", "content": text}])
        store.index_pending()
        (hit,) = store.search("needle")
        assert "the hidden needle is here" in hit.snippet
        assert "\n" not in hit.snippet
        assert len(hit.snippet) <= 200

    def test_indexing_counts_new_rows_once(self, store: SessionStore) -> None:
        rows = begin(store, 300)
        assert store.index_pending() == 300
        assert store.index_pending() == 0
        run_pass(store, cover=(rows[0]["_row_id"],), new_row=summary())
        store.append_message(SESSION, "user", "one more")
        assert store.index_pending() == 1
        assert len(store.search("message", limit=1_000)) == 300

    def test_a_long_backlog_is_indexed_by_the_search(self, store: SessionStore) -> None:
        begin(store, 1_500)
        assert len(store.search("message", limit=2_000)) == 1_500
        assert store.index_pending() == 0

    def test_what_left_the_view_is_the_users_words_and_things_of_a_rare_shape_in_turn(
        self, store: SessionStore
    ) -> None:
        begin(store)
        log = "\n".join(f"GET /src/part_{n}.py 200 in {n} ms" for n in range(40))
        rows = store.append(
            SESSION,
            [
                {"role": "user", "content": "keep it short"},
                {"role": "tool", "tool_call_id": "a", "content": f"{log}\njob 7f3c-91 died\n{log}"},
                {"role": "user", "content": "go on"},
                {"role": "tool", "tool_call_id": "b", "content": log},
                {"role": "tool", "tool_call_id": "c", "content": "it is in /srv/out/juno.bin"},
                {"role": "user", "content": "still to see"},
                {"role": "tool", "tool_call_id": "d", "content": "ticket PAY-4711"},
            ],
        )
        store.extract_pending()
        assert store.unseen(SESSION) == []
        cover(store, rows[:4], "all done")
        mask(store, rows[4])
        assert store.unseen(SESSION) == [
            (3, ""),
            (5, "/srv/out/juno.bin"),
            (1, ""),
            (2, "7f3c-91"),
        ]
        assert store.unseen(SESSION, limit=1) == [(3, "")]
        store.rewind(SESSION, 5)
        assert store.unseen(SESSION) == [(3, ""), (2, "7f3c-91"), (1, "")]
