from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.run.sft_parts import CHAT_ROW, data_stage, make_renderer, pairs, write_rows

from posttrain.core.errors import UserError
from posttrain.models import seedling
from posttrain.rollout.render import ChatRenderer
from posttrain.run.config import SftStage
from posttrain.run.data_rows import check_data, data_rows
from posttrain.run.rows import Rows

THINKING_DROPPED = seedling.TEMPLATE.replace("message['content']", "message['content'].split('</think>')[-1]")


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    return make_renderer(tmp_path_factory.mktemp("seedling"))


def read(stage: SftStage, renderer: ChatRenderer, held_out: int = 0, max_context: int = 1024, seed: int = 0) -> Rows:
    return data_rows(stage, renderer, max_context=max_context, held_out=held_out, seed=seed)


def test_rows_of_all_files_are_samples_in_order(tmp_path: Path, renderer: ChatRenderer) -> None:
    chats = write_rows(tmp_path / "a.jsonl", [CHAT_ROW])
    pq.write_table(pa.Table.from_pylist(pairs(2)), tmp_path / "b.parquet")
    rows = read(data_stage(chats, tmp_path / "*.parquet"), renderer)
    assert [renderer.text(one.tokens[one.trainable].tolist()) for one in rows.training] == ["Hi 12!See you", "0!", "1!"]
    assert rows.training[0].trajectory_id == f"data/{chats}:1"
    assert rows.training[2].trajectory_id == f"data/{tmp_path}/b.parquet, row 2"
    assert rows.validation == []
    assert rows.values == {"bad_rows": 0.0}
    assert rows.notes == []


def test_bad_rows_below_the_share_are_left_out_counted_and_named(tmp_path: Path, renderer: ChatRenderer) -> None:
    file = write_rows(tmp_path / "a.jsonl", [*pairs(60), "{broken", *pairs(60)])
    rows = read(data_stage(file), renderer)
    assert len(rows.training) == 120
    assert rows.values == {"bad_rows": 1.0}
    (note,) = rows.notes
    assert f"sft leaves out 1 of 121 rows (0.83%): {file}:61: it is not JSON" in note


def test_bad_rows_above_the_share_stop_the_run_with_counts_and_places(tmp_path: Path, renderer: ChatRenderer) -> None:
    file = write_rows(tmp_path / "a.jsonl", ["{broken"] * 8 + pairs(92))
    sentence = (
        rf"sft cannot use 8 of 100 rows \(8.00%\): {file}:1: it is not JSON.*{file}:5: .*and 3 more. At most 5.00%"
    )
    for refuse in (lambda stage: read(stage, renderer), check_data):
        with pytest.raises(UserError, match=sentence):
            refuse(data_stage(file, max_bad_share=0.05))
        refuse(data_stage(file, max_bad_share=0.08))


def test_a_row_longer_than_the_context_is_bad_and_never_cut(tmp_path: Path, renderer: ChatRenderer) -> None:
    file = write_rows(tmp_path / "a.jsonl", [*pairs(3), {"prompt": "x" * 40, "completion": "y"}])
    (sample,) = read(data_stage(write_rows(tmp_path / "long.jsonl", [pairs(1)[0]])), renderer).training
    room = len(sample.tokens)
    rows = read(data_stage(file, max_bad_share=0.5), renderer, max_context=room)
    assert [len(one.tokens) for one in rows.training] == [room] * 3
    assert f"{file}:4: too long: 45 tokens of at most {room}" in rows.notes[0]
    with pytest.raises(UserError, match="too long"):
        read(data_stage(file), renderer, max_context=room)


def test_a_row_that_the_template_cannot_render_is_bad(tmp_path: Path) -> None:
    refusing = "{% if messages[0].role == 'tool' %}{{ raise_exception('tools first') }}{% endif %}" + seedling.TEMPLATE
    tool = {"messages": [{"role": "tool", "content": "3"}, {"role": "assistant", "content": "a"}]}
    file = write_rows(tmp_path / "a.jsonl", [tool, *pairs(1)])
    rows = read(data_stage(file, max_bad_share=0.5), make_renderer(tmp_path / "model", refusing))
    assert "tools first" in rows.notes[0]
    assert len(rows.training) == 1


def test_files_without_a_usable_row_are_refused_whatever_the_share(tmp_path: Path, renderer: ChatRenderer) -> None:
    with pytest.raises(UserError, match="hold no rows"):
        check_data(data_stage(write_rows(tmp_path / "empty.jsonl", [])))
    with pytest.raises(UserError, match="cannot use 1 of 1 rows"):
        read(data_stage(write_rows(tmp_path / "bad.jsonl", ["x"]), max_bad_share=1.0), renderer)


def test_a_conversation_that_must_split_gives_a_sample_for_each_segment(tmp_path: Path) -> None:
    renderer = make_renderer(tmp_path / "model", THINKING_DROPPED)
    file = write_rows(tmp_path / "a.jsonl", [CHAT_ROW])
    rows = read(data_stage(file), renderer)
    assert [(one.trajectory_id, one.segment) for one in rows.training] == [(f"data/{file}:1", 0), (f"data/{file}:1", 1)]
    assert [renderer.text(one.tokens[one.trainable].tolist()) for one in rows.training] == ["Hi 12!", "See you"]
    with pytest.raises(UserError, match="no one text whose prompt could be learned"):
        read(data_stage(file, prompt_loss_weight=1.0), renderer)


def test_a_weight_for_prompts_learns_everything_but_the_first_token(tmp_path: Path, renderer: ChatRenderer) -> None:
    file = write_rows(tmp_path / "a.jsonl", [CHAT_ROW])
    (replies,) = read(data_stage(file), renderer).training
    (sample,) = read(data_stage(file, prompt_loss_weight=0.25), renderer).training
    assert sample.trainable.tolist() == [False] + [True] * (len(sample.tokens) - 1)
    assert sample.loss_weights.tolist() == [1.0 if reply else 0.25 for reply in replies.trainable]


def test_held_out_rows_are_apart_and_equal_rows_are_on_one_side(tmp_path: Path, renderer: ChatRenderer) -> None:
    file = write_rows(tmp_path / "a.jsonl", pairs(20) * 2)
    rows = read(data_stage(file), renderer, held_out=5)
    texts = [{renderer.text(one.tokens.tolist()) for one in side} for side in (rows.training, rows.validation)]
    assert [len(side) for side in texts] == [15, 5]
    assert not texts[0] & texts[1]
    assert len(rows.validation) == 10
    others = read(data_stage(file), renderer, held_out=5, seed=1).validation
    assert {renderer.text(one.tokens.tolist()) for one in others} != texts[1]


def test_rows_that_are_all_held_out_are_refused(tmp_path: Path, renderer: ChatRenderer) -> None:
    file = write_rows(tmp_path / "a.jsonl", pairs(3))
    with pytest.raises(UserError, match="holds out 3 distinct rows of its files for validation, and they have only 3"):
        read(data_stage(file), renderer, held_out=3)
