from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from posttrain.core.errors import ConfigError, UnknownNameError
from posttrain.learn.lora_config import LoraConfig
from posttrain.run import parts
from posttrain.run.config import DomainConfig, EngineConfig, LearnerConfig, RunConfig
from posttrain.run.parts import engine_spec, make_domains, start_learner
from posttrain.run.rl_stage import RlStage
from posttrain.run.train import check

MODEL = Path("model")


@pytest.mark.parametrize("name", ["torch", "reference"])
def test_an_engine_computes_in_the_learners_type(name: str) -> None:
    assert engine_spec(EngineConfig(name=name), MODEL, "float32")["dtype"] == "float32"
    assert "dtype" not in engine_spec(EngineConfig(name=name), MODEL, None)


def test_an_engine_without_a_type_is_told_none() -> None:
    options = {"max_context": 64}
    spec = engine_spec(EngineConfig(name="scripted", options=options), MODEL, "float32")
    assert spec == {"name": "scripted", "model": MODEL, "max_context": 64}


def test_options_of_the_engine_are_checked_before_it_is_built() -> None:
    def run(engine: EngineConfig, learner: LearnerConfig | None = None, **stage: Any) -> None:
        config = RunConfig(
            model="seedling-random",
            domains={"arithmetic": DomainConfig()},
            stages=[RlStage(kind="rl", **stage)],
            engine=engine,
            learner=learner or LearnerConfig(),
        )
        check(config, make_domains(config.domains))

    run(EngineConfig())
    run(EngineConfig(name="scripted"))
    run(EngineConfig(name="reference"), LearnerConfig(dtype="float64"))
    with pytest.raises(ConfigError, match="engine torch: dtype: Input should be 'bfloat16' or 'float32'"):
        run(EngineConfig(), LearnerConfig(dtype="float64"))
    with pytest.raises(ConfigError, match="no option of engine torch 'max_row'; did you mean 'max_rows'"):
        run(EngineConfig(options={"max_row": 3}))
    with pytest.raises(ConfigError, match="optimizer of stage rl: learning_rate must be a finite number"):
        run(EngineConfig(), optimizer={"learning_rate": float("nan")})
    with pytest.raises(UnknownNameError, match="no engine 'tourch'; did you mean 'torch'"):
        run(EngineConfig(name="tourch"))


def test_an_adapter_begins_from_the_runs_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class Learner:
        async def close(self) -> None: ...

    async def start(options: dict[str, Any], *_: Any) -> Learner:
        given.update(options)
        return Learner()

    async def begin(lora: LoraConfig | None) -> None:
        config = RunConfig(
            model="seedling-random",
            domains={"arithmetic": DomainConfig()},
            stages=[RlStage(kind="rl")],
            seed=5,
            learner=LearnerConfig(lora=lora),
        )
        async with start_learner(config, logs=Path("logs")):
            pass

    monkeypatch.setattr(parts, "start_learners", start)
    asyncio.run(begin(LoraConfig(rank=2)))
    assert (given["lora"], given["seed"]) == (LoraConfig(rank=2), 5)
    asyncio.run(begin(None))
    assert given["lora"] is None
