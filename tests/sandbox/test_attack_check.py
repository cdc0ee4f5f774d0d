"""The attack suite can fail: weak sandboxes and scripted results are found out, each for the right reason."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.core.errors import SandboxError
from posttrain.core.sandboxing import CallOutput, CallResult, IsolationTier, OutputStatus, ResultClass, RunResult
from posttrain.core.types import Json
from posttrain.sandbox.attacks.attack import Attack, Call, Run, attempts, program
from posttrain.sandbox.attacks.check import AttackResult, check
from posttrain.sandbox.attacks.world import World
from posttrain.sandbox.scripted import ScriptedCall, ScriptedSandbox

_WEAK = """
import json, sys
source, function, arguments = json.load(sys.stdin)
scope = {}
exec(source, scope)
value = scope[function](*arguments)
with open(sys.argv[1], "w") as file: json.dump(value, file)
"""
QUIET = Attack("quiet", (), program("return []"))


def in_a_subprocess(folder: str) -> Callable[[ScriptedCall], CallResult]:
    """What most reward code does: the host's files, environment and network are all there."""

    def answer(asked: ScriptedCall) -> CallResult:

        order = json.dumps([asked.source, asked.function, asked.inputs[0]])
        path = f"{folder}/answer"
        command = [sys.executable, "-S", "-c", _WEAK, path]
        done = subprocess.run(command, input=order, capture_output=True, text=True, cwd=folder, check=False)
        run = RunResult(ResultClass.OK, IsolationTier.REDUCED, done.stdout, done.stderr)
        with Path(path).open() as file:
            return CallResult(run, (CallOutput(OutputStatus.VALUE, json.load(file)),))

    return answer


def ended(result_class: ResultClass, value: Json = None) -> CallResult:
    run = RunResult(result_class, IsolationTier.SCRIPTED)
    return CallResult(run, (CallOutput(OutputStatus.VALUE, value),))


def scripted(attacked: Callable[[], CallResult], neighbour: Json = 42) -> ScriptedSandbox:
    def answer(asked: ScriptedCall) -> CallResult:
        return attacked() if asked.function == "attack" else ended(ResultClass.OK, neighbour)

    return ScriptedSandbox(answer=answer)


def verdict(sandbox: ScriptedSandbox, attack: Attack = QUIET) -> AttackResult:
    (result,) = asyncio.run(check(sandbox, {"a family": [attack]}))
    return result


def test_quiet_program_is_contained() -> None:
    assert verdict(scripted(lambda: ended(ResultClass.OK, [])))


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        (Attack("environment", (), program("print(dict(os.environ))\nreturn []")), "a secret of the host came out"),
        (Attack("read", (), program("print(open(world['secret_file']).read())\nreturn []")), "a secret of the host"),
        (Attack("write", (), program("open(world['canary'], 'w').write('x')\nreturn []")), "a file of the host"),
        (Attack("delete", (), program("os.remove(world['canary'])\nreturn []")), "a file of the host"),
        (Attack("plant", (), program("open(world['folder'] + '/x', 'w').close()\nreturn []")), "a file of the host"),
        (Attack("kill", (), program("os.kill(world['pid'], 9)\ntime.sleep(0.3)\nreturn []")), "a process of the host"),
        (
            Attack("connect", (), program("socket.create_connection(('127.0.0.1', world['port']))\nreturn []")),
            "a listener of the host was reached",
        ),
        (
            Attack("abstract", (), program("socket.socket(1, 1).connect('\\0' + world['abstract'])\nreturn []")),
            "a listener of the host was reached",
        ),
        (
            Attack("datagram", (), program("socket.socket(2, 2).sendto(b'x', ('127.0.0.1', world['udp_port']))")),
            "a listener of the host was reached",
        ),
        (Attack("boast", (), attempts("open('/etc/passwd')")), "the program did what it must not"),
        (
            Attack(
                "marker",
                (6,),
                program("open('planted', 'w').close()\nreturn []"),
                then=Call(program("return os.listdir('.')").source),
            ),
            "the program did what it must not",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Attack) else "",
)
def test_plain_subprocess_is_found_out(attack: Attack, reason: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    weak = in_a_subprocess(str(tmp_path_factory.mktemp("weak")))
    result = verdict(ScriptedSandbox(answer=weak), attack)
    assert not result
    assert reason in result.reason


def test_right_answer_to_an_attack_is_a_forged_verdict() -> None:
    def leaked() -> CallResult:
        (outside,) = [found for found in gc.get_objects() if type(found) is World]
        return ended(ResultClass.OK, outside.right_answer)

    result = verdict(scripted(leaked))
    assert (result.forged, result.reason) == (True, "a forged verdict would have been counted")
    assert not result


def test_object_that_lies_is_a_forged_verdict() -> None:
    from unittest.mock import ANY

    assert verdict(scripted(lambda: ended(ResultClass.OK, ANY))).forged


def test_wrong_class_is_not_contained() -> None:
    result = verdict(scripted(lambda: ended(ResultClass.TIME_LIMIT, [])))
    assert (result.contained, result.reason) == (False, "it ended as time_limit, not as ok")


def test_fault_of_ours_is_never_right() -> None:
    assert not verdict(scripted(lambda: ended(ResultClass.INFRASTRUCTURE_ERROR, [])))


def test_neighbour_with_a_wrong_answer_is_told() -> None:
    result = verdict(scripted(lambda: ended(ResultClass.OK, []), neighbour=41))
    assert not result
    assert not result.neighbour_right


def test_missing_verb_is_not_offered_and_not_contained() -> None:
    def refuse() -> CallResult:
        raise SandboxError("the sandbox 'half' has no verb 'call'")

    result = verdict(scripted(refuse))
    assert (result.offered, result.contained, result.result_class) == (False, False, None)
    assert "has no verb" in result.reason


def test_program_that_boasts_by_printing_is_found_out() -> None:
    boasting = RunResult(ResultClass.OK, IsolationTier.SCRIPTED, stdout="could connect\n")
    sandbox = ScriptedSandbox(functions={"triple": lambda x: 3 * x}, run_result=boasting)
    assert not verdict(sandbox, Attack("run", (), Run(("true",))))
