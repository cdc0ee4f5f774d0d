"""A model folder from somebody else is data: its code never runs and its pickles are never opened."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engines.parts import save_model

from posttrain.core.errors import ModelError, PosttrainError
from posttrain.core.types import Message, Role
from posttrain.engines.reference import ReferenceEngine
from posttrain.engines.torch import TorchEngine
from posttrain.learn.trainer import Trainer
from posttrain.models.catalog import resolve
from posttrain.models.template import ChatTemplate

LOADERS: dict[str, Callable[[Path], Any]] = {
    "learner": lambda folder: Trainer(folder, "float32"),
    "embedded engine": lambda folder: TorchEngine(folder, dtype="float32"),
    "reference engine": ReferenceEngine,
    "catalog": lambda folder: resolve(str(folder)),
}


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("model_type", ["llama", "unheard_of"])
def test_code_in_a_model_folder_never_runs(loader: str, model_type: str, tmp_path: Path) -> None:
    """Known to transformers by its type or not, the folder offers classes of its own."""
    mark, folder = tmp_path / "mark", save_model(tmp_path / "model")
    (folder / "tokenizer.json").write_text("{}")
    code = f"from pathlib import Path\nPath({str(mark)!r}).touch()\nclass A: pass\n"
    for name in ("configuration_evil", "modeling_evil"):
        (folder / f"{name}.py").write_text(code)
    config = json.loads((folder / "config.json").read_text())
    own = {"AutoConfig": "configuration_evil.A", "AutoModelForCausalLM": "modeling_evil.A"}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": model_type, "auto_map": own}))
    if model_type == "llama" or loader == "catalog":
        LOADERS[loader](folder)
    else:
        with pytest.raises(PosttrainError):
            LOADERS[loader](folder)
    assert not mark.exists()


@pytest.mark.parametrize("loader", LOADERS)
def test_pickled_weights_are_refused_unopened(loader: str, tmp_path: Path) -> None:
    mark, folder = tmp_path / "mark", save_model(tmp_path / "model")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").unlink()
    torch.save({"model.norm.weight": Bomb(mark)}, folder / "pytorch_model.bin")
    with pytest.raises(PosttrainError, match="safetensors"):
        LOADERS[loader](folder)
    assert not mark.exists()


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__['__builtins__'] }}",
        "{% for message in messages %}{{ message.update({'content': 'x'}) }}{% endfor %}",
        "{{ messages.__init__.__globals__ }}",
        "{{ '%s'|format(cycler.__init__.__globals__.os.popen('id').read()) }}",
    ],
)
def test_a_chat_template_reaches_nothing_but_its_messages(template: str) -> None:
    message = Message(Role.USER, "hello")
    with pytest.raises(ModelError, match="chat template"):
        ChatTemplate(template, {}).render([message], generation_prompt=True)
    assert message.content == "hello"


def test_the_bomb_would_go_off(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(tmp_path / "mark")))
    assert (tmp_path / "mark").exists()
