from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.models import seedling
from posttrain.models.catalog import built_in
from posttrain.models.seedling_vocabulary import CONTROL_TOKENS, word_tokens

TOKENIZER = seedling.build_tokenizer()


def test_the_same_seed_gives_the_same_bytes_in_another_process(tmp_path: Path, seedling_folder: Path) -> None:
    program = (
        f"from pathlib import Path; from posttrain.models import seedling; seedling.create(Path({str(tmp_path)!r}), 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    names = sorted(path.name for path in seedling_folder.iterdir())
    assert names == sorted(path.name for path in tmp_path.iterdir())
    assert all((seedling_folder / name).read_bytes() == (tmp_path / name).read_bytes() for name in names)


def test_other_bytes_are_another_revision(seedling_folder: Path) -> None:
    """Change both together: a cached folder is recognised by its revision alone."""
    written = b"".join(path.read_bytes() for path in sorted(seedling_folder.iterdir()))
    assert (seedling.REVISION, hashlib.sha256(written).hexdigest()) == (
        2,
        "e7977264d9b74b30275ba341868dae5e72c7895e62aef3699adf7a7f53ae3d3b",
    )


def test_another_seed_gives_other_weights_and_nothing_else(tmp_path: Path, seedling_folder: Path) -> None:
    seedling.create(tmp_path, seed=1)
    changed = [
        path.name for path in seedling_folder.iterdir() if path.read_bytes() != (tmp_path / path.name).read_bytes()
    ]
    assert changed == ["model.safetensors"]


def test_transformers_loads_it_as_it_was_written(seedling_folder: Path) -> None:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(seedling_folder)
    written = load_file(seedling_folder / "model.safetensors")
    loaded = model.state_dict()
    assert set(loaded) - set(written) == {"lm_head.weight"}
    assert all(torch.equal(weight, loaded[name]) for name, weight in written.items())
    assert torch.equal(loaded["lm_head.weight"], written["model.embed_tokens.weight"])
    record = built_in("seedling")
    assert record is not None
    assert model.num_parameters() == seedling.num_parameters() == record.num_parameters
    ids = torch.tensor([TOKENIZER.encode("Compute 1 + 2.").ids])
    loss = model(ids, labels=ids).loss
    assert abs(loss.item() - torch.tensor(float(TOKENIZER.get_vocab_size())).log().item()) < 0.5


@settings(deadline=None, max_examples=100)
@given(text=st.one_of(st.text(), st.text(alphabet=st.characters(max_codepoint=127)), st.sampled_from(word_tokens())))
def test_every_text_comes_back_from_its_ids(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text


def test_every_listed_word_is_one_token() -> None:
    pairs = {word: TOKENIZER.encode(word).ids for word in word_tokens()}
    assert {word: ids for word, ids in pairs.items() if len(ids) != 1} == {}


def test_digits_are_tokens_of_their_own() -> None:
    assert TOKENIZER.encode("1200+7").tokens == [*"1200+7"]


def test_an_unlisted_word_is_spelled() -> None:
    assert TOKENIZER.encode(" quokka").tokens == ["Ġ", *"quokka"]


def test_ids_do_not_move() -> None:
    text = "\n".join(word_tokens()).encode()
    assert hashlib.sha256(text).hexdigest() == "428065a934979ed8a37be764725023fbdf3548b883be451c10fda23d7b89bafd"
    assert [TOKENIZER.id_to_token(number) for number in range(len(CONTROL_TOKENS))] == list(CONTROL_TOKENS)
    assert len(set(TOKENIZER.get_vocab().values())) == TOKENIZER.get_vocab_size()
