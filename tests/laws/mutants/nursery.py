"""A process that has imported what tests import, all but posttrain, and forks a child for each run of some tests.

What is imported is shared by all children, so that a run costs little more than its tests. Each child takes posttrain
from the folder that it is given, and says which tests failed and of what. A line of JSON in is a run, a line out its
outcome. The other side is `tests/laws/mutants/runs.py`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

ALWAYS = (
    "_hypothesis_pytestplugin",
    "hypothesis.extra.numpy",
    "numpy.random",
    "pydantic.type_adapter",
    "tokenizers",
    "torch._dynamo",  # which torch's own optimizers import
)
WITH_MODELS = (
    "pyarrow.parquet",
    "safetensors.torch",
    "torch.utils.checkpoint",
    "transformers.integrations.sdpa_attention",
    "transformers.modeling_layers",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
)
"""What takes seconds to import and does not know posttrain."""

LIMIT_S = 300
"""Of a child: a mistake may make a test wait for ever."""


@dataclass
class Outcome:
    exit_code: int = -1
    """pytest's; -1 where it did not come to an end."""
    failures: list[tuple[str, str]] = field(default_factory=list)
    """Node id, and the class of what was raised there."""
    reason: str = ""
    """Why it did not come to an end."""

    def pytest_exception_interact(self, node: Any, call: pytest.CallInfo[Any]) -> None:
        """A hook of pytest."""
        assert call.excinfo is not None
        self.failures.append((node.nodeid, call.excinfo.typename))


def run(tree: Path, node_ids: list[str]) -> Outcome:
    """In this very process, which is good for nothing else afterwards."""
    from hypothesis import Phase, settings

    sys.path.insert(0, str(tree))
    os.environ["PYTHONPATH"] = str(tree)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # The same examples every time, and no search for a smaller one: that a test fails is all that is asked.
    settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        report_multiple_bugs=False,
    )
    settings.load_profile("mutants")
    import posttrain

    outcome = Outcome()
    if not Path(posttrain.__file__).is_relative_to(tree):
        outcome.reason = f"posttrain was imported from {posttrain.__file__}"
        return outcome
    options = ["-x", "-q", "--assert=plain", "--tb=short", "-p", "no:cacheprovider"]
    options += ["-p", "_hypothesis_pytestplugin", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    outcome.exit_code = int(pytest.main([*options, *node_ids], plugins=[outcome]))
    return outcome


def forked(tree: Path, node_ids: list[str], log: Path) -> str:
    """The outcome as JSON; what the child prints goes to `log`."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(LIMIT_S)
        output = os.open(log, os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            outcome = run(tree, node_ids)
        except BaseException:
            outcome = Outcome(reason=traceback.format_exc())
        os.write(writer, json.dumps(asdict(outcome)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return text or json.dumps(asdict(Outcome(reason=f"the child ended with status {status}")))


def main() -> None:
    for name in (*ALWAYS, *(WITH_MODELS if "with_models" in sys.argv else ())):
        importlib.import_module(name)
    assert "posttrain" not in sys.modules, "children are to import it themselves"
    gc.collect()
    gc.freeze()  # the children's own collections pass over it
    for line in sys.stdin:
        order = json.loads(line)
        print(forked(Path(order["tree"]), order["node_ids"], Path(order["log"])), flush=True)


if __name__ == "__main__":
    main()
