"""What isolation containers give here, found by doing: make one, try to get out of it, once per process.

Either everything holds, and the tier is returned, or `IsolationUnavailableError` says what is missing. It never
settles for less (law L27).
"""

from __future__ import annotations

import functools
import json
import shutil
import sys
from functools import partial
from pathlib import Path

from posttrain.core.errors import IsolationUnavailableError, SandboxError
from posttrain.core.sandboxing import IsolationTier, OutputStatus, ResultClass, SandboxLimits
from posttrain.sandbox.container_command import Engine
from posttrain.sandbox.container_engine import ask, remove_leftovers
from posttrain.sandbox.container_execution import execute_in
from posttrain.sandbox.conversation import Conversation
from posttrain.sandbox.order import Order
from posttrain.sandbox.outcome import judge
from posttrain.sandbox.probe import ATTEMPTS, Trial, aside, try_walls

_PROGRAMS = ("docker", "podman")
_LOOK = """
import ctypes

PR_GET_NO_NEW_PRIVS = 39

def said(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""

def capabilities():
    lines = [line.split() for line in said("/proc/self/status").splitlines() if line.startswith("Cap")]
    return {int(number, 16) for name, number in lines}

def limited(*paths):
    for path in paths:
        if said("/sys/fs/cgroup/" + path):
            return said("/sys/fs/cgroup/" + path).strip().isdigit() and int(said("/sys/fs/cgroup/" + path)) < 1 << 40
    return False

PLACES = ("/x", "/usr/x", "/etc/x", "/run/x", "/var/tmp/x", "/sys/x", "/dev/x")

def look(num_processes, port):
    return {
        "the program is not root": os.getuid() != 0 and refused(os.setuid, 0),
        "the program has no privileges and can gain none": capabilities() == {0}
        and ctypes.CDLL(None).prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1,
        "processes of others are out of sight": visible() == [1, os.getpid()],
        "the first process cannot be touched": all(
            refused(open, "/proc/1/" + path, "wb", 0) for path in ("fd/0", "fd/1", "fd/2", "mem")
        ),
        "the system is read-only": all(refused(open, path, "w") for path in PLACES),
        "there is no network": unreachable(port),
        "processes are limited": processes() == num_processes,
        "memory is limited": limited("memory.max", "memory/memory.limit_in_bytes"),
        "disk is limited": disk(),
    }
"""
_TRIAL = Trial("the sandbox 'container'", IsolationTier.ROOT_IN_CONTAINER, ATTEMPTS + _LOOK)
_USER_LIMITS = SandboxLimits(wall_s=20.0)
_HAS_USER_NAMESPACE = """
def has_user_namespace():
    with open("/proc/self/uid_map") as file:
        return file.read().split() != ["0", "0", "4294967295"]
"""


def find_engine(program: str, image: str, runtime: str) -> Engine:
    """`program`: empty for the first that is installed. Raises `IsolationUnavailableError`."""
    if not sys.platform.startswith("linux"):
        raise IsolationUnavailableError(f"the sandbox 'container' needs Linux, and this is {sys.platform}")
    for name in (program,) if program else _PROGRAMS:
        path = shutil.which(name)
        if path:
            return Engine(Path(path), name == "podman", image, runtime)
    raise IsolationUnavailableError(f"the sandbox 'container' needs {program or ' or '.join(_PROGRAMS)} on the PATH")


@functools.cache
def container_isolation(engine: Engine) -> IsolationTier:
    """Blocks for some seconds the first time. Removes what dead processes left. Raises
    `IsolationUnavailableError`."""
    _check_image(engine)
    try:
        remove_leftovers(engine)
        return aside(lambda: _try(engine))
    except SandboxError as error:
        raise _TRIAL.unavailable(error) from error


def _check_image(engine: Engine) -> None:
    try:
        volumes = json.loads(ask(engine.ask_volumes()) or "null")
    except SandboxError as error:
        raise _TRIAL.unavailable(f"{error}; where the image is not here yet, run `{engine.pull}`") from error
    except ValueError as error:
        raise _TRIAL.unavailable(f"{engine.program} does not answer as docker and podman do ({error})") from error
    if volumes:
        raise _TRIAL.unavailable(
            f"the image {engine.image} declares volumes ({', '.join(volumes)}), which no limit holds for: take another"
        )


async def _try(engine: Engine) -> IsolationTier:
    await try_walls(_TRIAL, partial(execute_in, engine))
    order = Order(limits=_USER_LIMITS, source=_HAS_USER_NAMESPACE, function="has_user_namespace")
    conversation = Conversation([[]])
    run = judge(await execute_in(engine, order, conversation), _TRIAL.tier, _USER_LIMITS, conversation)
    if run.result_class is ResultClass.INFRASTRUCTURE_ERROR:
        raise _TRIAL.unavailable(run.reason)
    [answer] = conversation.outputs()
    is_full = answer.status is OutputStatus.VALUE and answer.value is True
    return IsolationTier.FULL if is_full else _TRIAL.tier
