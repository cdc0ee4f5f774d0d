from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posttrain.core.errors import UserError
from posttrain.core.types import Message, Role
from posttrain.store.sft_rows import BadRow, SftRow, data_files, read_rows

CHAT = {
    "messages": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
    ]
}


def write(path: Path, *rows: Any) -> Path:
    path.write_bytes(b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows))
    return path


def write_table(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def one(path: Path) -> SftRow | BadRow:
    (row,) = read_rows([path])
    return row


def reason(path: Path) -> str:
    row = one(path)
    assert isinstance(row, BadRow), row
    return row.reason


def test_every_message_of_a_chat_is_read_and_all_of_it_may_be_learned(tmp_path: Path) -> None:
    row = one(write(tmp_path / "a.jsonl", CHAT))
    assert row == SftRow(
        place=f"{tmp_path}/a.jsonl:1",
        messages=(Message(Role.SYSTEM, "Be short."), Message(Role.USER, "Hello"), Message(Role.ASSISTANT, "Hi")),
        first_trained=0,
    )


@pytest.mark.parametrize("key", ["completion", "response"])
def test_prompt_and_completion_may_be_texts(tmp_path: Path, key: str) -> None:
    row = one(write(tmp_path / "a.jsonl", {"prompt": "1 + 1?", key: "2", "source": "school"}))
    assert isinstance(row, SftRow)
    assert row.messages == (Message(Role.USER, "1 + 1?"), Message(Role.ASSISTANT, "2"))
    assert row.first_trained == 1


def test_a_prompt_of_messages_is_history_with_the_replies_in_it(tmp_path: Path) -> None:
    history = [*CHAT["messages"], {"role": "user", "content": "And now?"}]
    later = [
        {"role": "assistant", "content": "Bye"},
        {"role": "tool", "content": "ok"},
        {"role": "assistant", "content": "."},
    ]
    row = one(write(tmp_path / "a.jsonl", {"prompt": history, "completion": later}))
    assert isinstance(row, SftRow)
    assert len(row.messages) == 7
    assert row.first_trained == 4


def test_parquet_rows_are_those_of_jsonl_and_null_columns_are_absent(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {**CHAT, "prompt": None, "response": None},
        {"messages": None, "prompt": "1 + 1?", "response": "2"},
    ]
    found = list(read_rows([write_table(tmp_path / "a.parquet", rows)]))
    expected = list(read_rows([write(tmp_path / "a.jsonl", *rows)]))
    assert [(row.messages, row.first_trained) for row in found if isinstance(row, SftRow)] == [
        (row.messages, row.first_trained) for row in expected if isinstance(row, SftRow)
    ]
    assert [row.place for row in found] == [f"{tmp_path}/a.parquet, row {number}" for number in (1, 2)]


def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf" + json.dumps(CHAT).encode() + b"\r\n\r\n   \n{broken\n" + json.dumps(CHAT).encode()
    )
    good, bad, last = read_rows([path])
    assert isinstance(good, SftRow)
    assert isinstance(last, SftRow)
    assert bad.place == f"{path}:4"
    assert last.place == f"{path}:5"


def test_files_are_read_in_order_with_good_and_bad_rows_where_they_stand(tmp_path: Path) -> None:
    first = write(tmp_path / "b.jsonl", CHAT, [])
    second = write_table(tmp_path / "a.parquet", [{"text": "x"}, {"text": "y"}])
    places = [str(row.place) for row in read_rows([first, second])]
    assert places == [f"{first}:1", f"{first}:2", f"{second}, row 1", f"{second}, row 2"]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (b"{broken", "it is not JSON: Expecting property name"),
        (b'{"prompt": "\xff", "completion": "a"}', "not text in UTF-8"),
        (b"[" * 100_000, "cannot be read as JSON"),
        (b'{"prompt": "a", "completion": ' + b"9" * 5000 + b"}", "cannot be read as JSON"),
        (["a"], "no object"),
        ({}, "but none of them"),
        ({"text": "a"}, "but none of them"),
        ({"prompt": "a"}, "but 'prompt'"),
        ({"completion": "a"}, "but 'completion'"),
        ({"messages": None}, "but none of them"),
        ({**CHAT, "prompt": "a"}, "but 'messages', 'prompt'"),
        ({"prompt": "a", "completion": "b", "response": "c"}, "but 'completion', 'prompt', 'response'"),
        ({"messages": []}, "at least one message"),
        ({"messages": {"role": "user"}}, "at least one message"),
        ({"messages": ["hello"]}, "message 1 is no object"),
        ({"messages": [{"role": "human", "content": "a"}]}, "message 1 has the unknown role 'human' (known: system"),
        ({"messages": [{"role": ["user"], "content": "a"}]}, "unknown role"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "the content of message 1 is not text"),
        ({"messages": [{"role": "user"}]}, "not text: None"),
        (
            {"messages": [*CHAT["messages"], {"role": "assistant", "content": "a", "tool_calls": [{}]}]},
            "message 4 has tool calls",
        ),
        ({"messages": CHAT["messages"][:2]}, "no turn of the assistant"),
        ({"prompt": CHAT["messages"], "completion": "a"}, "ends with a turn of the assistant"),
        ({"prompt": "a", "completion": [{"role": "user", "content": "a"}]}, "no turn of the assistant"),
        ({"messages": CHAT["messages"][2:]}, "begins with the assistant"),
        ({"prompt": "a", "completion": ""}, "reply 1 of 1 is empty"),
        (
            {"messages": [*CHAT["messages"], {"role": "user", "content": ""}, {"role": "assistant", "content": " \n"}]},
            "reply 2 of 2 is empty",
        ),
        (b'{"prompt": "\\ud800", "completion": "a"}', "half of a surrogate pair"),
        ({"messages": 7}, "at least one message, not 7"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(tmp_path: Path, row: Any, sentence: str) -> None:
    assert sentence in reason(write(tmp_path / "a.jsonl", row))


def test_what_a_reason_quotes_is_short(tmp_path: Path) -> None:
    assert len(reason(write(tmp_path / "a.jsonl", {"messages": [{"role": "x" * 10_000, "content": ""}]}))) < 160


def test_a_reply_in_the_history_may_be_empty(tmp_path: Path) -> None:
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "b"}]
    assert isinstance(one(write(tmp_path / "a.jsonl", {"prompt": history, "completion": "c"})), SftRow)


def test_a_file_that_cannot_be_read_at_all_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(UserError, match=r"a\.parquet cannot be read as Parquet"):
        list(read_rows([tmp_path / "a.parquet"]))
    with pytest.raises(UserError, match=r"gone\.jsonl cannot be read: No such file"):
        list(read_rows([tmp_path / "gone.jsonl"]))


def test_globs_find_files_by_name_and_every_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    for name in ("b.jsonl", "a.jsonl", "c.parquet", "deep/d.jsonl"):
        (tmp_path / name).touch()
    assert data_files(["c.parquet", "*.jsonl", "a.jsonl"]) == [Path("c.parquet"), Path("a.jsonl"), Path("b.jsonl")]
    assert data_files(["**/*.jsonl"]) == [Path("a.jsonl"), Path("b.jsonl"), Path("deep/d.jsonl")]
    assert data_files([f"{tmp_path}/deep/*"]) == [tmp_path / "deep/d.jsonl"]


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path: Path) -> None:
    odd = tmp_path / "a[1].jsonl"
    odd.touch()
    assert data_files([str(odd)]) == [odd]


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("none.jsonl", "no file 'none.jsonl'"),
        ("*.none", "no file"),
        ("a.csv", "which a.csv is not"),
        ("**a", "no pattern"),
        ("", "no pattern"),
    ],
)
def test_patterns_without_a_usable_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").touch()
    with pytest.raises(UserError, match=r".") as caught:
        data_files([pattern])
    assert sentence in str(caught.value)
