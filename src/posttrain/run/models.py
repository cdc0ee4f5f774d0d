"""What the model commands do: list the built-in models, and get one: download, or train it here."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from posttrain.core.protocols import Observer
from posttrain.gate.evaluate import EvaluationOptions
from posttrain.models import smollm2
from posttrain.models.cache import exclusive, finished_folder, missing_files
from posttrain.models.catalog import BUILT_INS, built_in, resolve
from posttrain.run.config import DomainConfig, LearnerConfig, RunConfig, SftStage
from posttrain.run.train import MODEL_FOLDER, start_run

SEEDLING = "seedling"


def list_models() -> list[dict[str, Any]]:
    """One row a built-in model."""
    return [
        {
            "name": model.name,
            "state": "here" if not missing_files(model.folder()) else "to get",
            "licence": model.licence,
            "parameters": model.num_parameters,
            "description": model.description,
        }
        for model in BUILT_INS
    ]


def get_model(name: str, observer: Observer) -> Path:
    """Have the model in the cache, or in the hub's, and return its folder. Raises `UserError`."""
    if name == smollm2.NAME:
        return smollm2.get(progress=lambda sentence, fraction: observer.phase(sentence))
    if name == SEEDLING:
        return _train_seedling(observer)
    return resolve(name)


def seedling_config() -> RunConfig:
    """Pre-training from fresh weights on the domains' texts at their easiest levels: minutes on two cores."""
    return RunConfig(
        model="seedling-random",
        domains={name: DomainConfig(level=[1, 2]) for name in ("arithmetic", "ordering", "python_functions", "words")},
        stages=[
            SftStage(
                kind="sft",
                name="pretrain",
                max_steps=900,
                demonstrations=1150,
                demonstrations_per_step=32,
                prompt_loss_weight=0.05,
                optimizer={"learning_rate": 3e-3, "warmup_steps": 20, "schedule": "linear"},
                evaluate=False,
            )
        ],
        evaluate_base=False,
        evaluation=EvaluationOptions(tasks=1, samples=1),
        learner=LearnerConfig(dtype="float32"),
    )


def _train_seedling(observer: Observer) -> Path:
    record = built_in(SEEDLING)
    assert record is not None
    target = record.folder()
    with exclusive(target):
        if target.is_dir() and not missing_files(target):
            return target
        with tempfile.TemporaryDirectory(prefix="posttrain-seedling-") as runs, finished_folder(target) as work:
            result = start_run(seedling_config(), Path(runs) / SEEDLING, observer)
            shutil.copytree(result.run / MODEL_FOLDER, work, dirs_exist_ok=True)
    return target
