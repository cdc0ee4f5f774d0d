"""Stands for docker and podman, run as a program: the commands and options that we use, and none other.

It runs what it is told within real walls, made by bubblewrap, since our pid 1 ends all processes that it sees. Not
there are control groups: the files that tell of them are, and processes are counted by user.
Arguments: a folder, in which `settings.json` says what to run with (`container_fakes.py`) and in which each container
has a folder; then docker's own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

STATE = Path(sys.argv[1])
SETTINGS = json.loads((STATE / "settings.json").read_text())
FAULTS = STATE / "faults.json"
MIB = 1 << 20


def main(argv: list[str]) -> None:
    record(argv)
    if fault("daemon down"):
        refuse("Cannot connect to the Docker daemon at unix:///fake.sock. Is the docker daemon running?", 125)
    match argv:
        case ["run", *rest]:
            run(parsed_run(rest))
        case ["kill", name]:
            end(name) or refuse(f"Error response from daemon: cannot kill container: {name}: No such container: {name}")
        case ["rm", "--force", "--volumes", name]:
            remove(name)
        case ["container", "inspect", "--format", "{{.State.OOMKilled}}", name]:
            print("true" if (folder(name) / "oom").exists() else "false")
        case ["image", "inspect", "--format", "{{json .Config.Volumes}}", image]:
            if image not in SETTINGS["images"]:
                refuse(f"Error response from daemon: No such image: {image}")
            print(json.dumps(SETTINGS["images"][image]))
        case ["ps", "--all", "--filter", "label=posttrain.sandbox", "--format", "{{.Names}}"]:
            print("\n".join(sorted(path.name for path in (STATE / "containers").iterdir())))
        case _:
            refuse(f"unknown command: docker {' '.join(argv)}")


def parsed_run(argv: list[str]) -> argparse.Namespace:
    """Refuses what it does not know, as docker does; `once` refuses what is said twice."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for required in ("--name", "--label", "--pull", "--log-driver", "--network", "--ipc", "--hostname", "--cap-drop"):
        parser.add_argument(required, required=True)
    for required in ("--security-opt", "--user", "--tmpfs", "--shm-size", "--memory", "--memory-swap", "--workdir"):
        parser.add_argument(required, required=True)
    parser.add_argument("--pids-limit", type=int, required=True)
    parser.add_argument("--cpus", type=float, required=True)
    parser.add_argument("--ulimit", action="append", required=True)
    parser.add_argument("--entrypoint", required=True)
    parser.add_argument("--runtime")
    parser.add_argument("--interactive", action="store_true", required=True)
    parser.add_argument("--read-only", action="store_true", required=True)
    if SETTINGS["podman"]:
        parser.add_argument("--read-only-tmpfs", choices=["false"], required=True)
        parser.add_argument("--http-proxy", choices=["false"], required=True)
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    try:
        return parser.parse_args(argv)
    except (argparse.ArgumentError, SystemExit) as error:
        refuse(f"unknown or missing flag: {error}", 125)


def run(options: argparse.Namespace) -> None:
    if options.image not in SETTINGS["images"]:
        refuse(f"docker: Error response from daemon: No such image: {options.image}.", 125)
    if code := fault("runs fail"):
        refuse("docker: Error response from daemon: failed to create task: no space left on device.", code)
    if fault("says something else"):
        print("Unable to find image locally", flush=True)
    if fault("never starts"):
        time.sleep(3600)
    home = folder(options.name)
    home.mkdir()
    command = [part for part in options.command if part != "python3" or not fault("has no python")]
    process = subprocess.Popen(
        [*walls(options, home), *limits(options), options.entrypoint, *command],
        env={"PATH": SETTINGS["path"], "HTTP_PROXY": "http://user:secret@proxy"},
        stdin=input_that_stays_open() if fault("input stays open") else None,
    )
    (home / "pid").write_text(str(process.pid))
    code = process.wait()
    (home / "ended").touch()
    sys.exit(code if code >= 0 else 128 - code)


def input_that_stays_open() -> int:
    read, write = os.pipe()

    def pass_on() -> None:
        while data := os.read(0, 65536):
            os.write(write, data)

    threading.Thread(target=pass_on, daemon=True).start()
    return read


def walls(options: argparse.Namespace, home: Path) -> list[str]:
    """Bubblewrap's: read-only, without network, each with processes of its own."""
    assert (options.network, options.ipc, options.cap_drop) == ("none", "private", "ALL")
    assert options.security_opt == "no-new-privileges"
    target, _, mount_options = options.tmpfs.partition(":")
    mount = dict(part.partition("=")[::2] for part in mount_options.split(","))
    if SETTINGS["podman"] and "nr_inodes" in mount:
        refuse('Error: unknown mount option "nr_inodes": invalid mount option', 125)
    memory = "max" if fault("no limit of memory") else str(in_bytes(options.memory))
    (home / "memory.max").write_text(memory)
    (home / "memory.events").write_text("low 0\noom_kill 0\n")
    command = [SETTINGS["bwrap"], *SETTINGS["system"], "--unshare-ipc", "--unshare-pid", "--unshare-uts"]
    command += [] if fault("has a network") else ["--unshare-net"]
    command += ["--hostname", options.hostname, "--new-session", "--die-with-parent"]
    command += [] if fault("shares processes") else ["--as-pid-1"]
    if os.getuid():
        command += ["--unshare-user", "--uid", options.user.split(":")[0], "--gid", options.user.split(":")[1]]
        command += ["--cap-drop", "ALL"]
    else:
        command += [
            "--cap-drop",
            "ALL",
            "--cap-add",
            "CAP_SETUID",
            "--cap-add",
            "CAP_SETGID",
            "--cap-add",
            "CAP_SETPCAP",
        ]
    for device in ("null", "zero", "full", "random", "urandom"):
        command += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    command += ["--proc", "/proc", "--chdir", options.workdir]
    command += ["--perms", mount["mode"], "--size", str(in_bytes(mount["size"])), "--tmpfs", target]
    command += ["--perms", "1777", "--size", str(in_bytes(options.shm_size)), "--tmpfs", "/dev/shm"]
    for name in ("memory.max", "memory.events"):
        command += ["--ro-bind", str(home / name), f"/sys/fs/cgroup/{name}"]
    if fault("can be written to"):
        command += ["--perms", "0755", "--dir", "/var", "--perms", "1777", "--tmpfs", "/var/tmp"]
    return [*command, "--remount-ro", "/", "--"]


def limits(options: argparse.Namespace) -> list[str]:
    """As real root, whom no count of processes binds, as a user of each container's own."""
    wanted = ["prlimit", *(f"--{limit}" for limit in options.ulimit)]
    if not fault("no limit of processes"):
        wanted.append(f"--nproc={options.pids_limit}")
    if os.getuid():
        return wanted
    user = random.randrange(20_000, 60_000)
    identity = [f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
    if fault("keeps privileges"):
        return ["setpriv", *identity[:3], *wanted]
    identity += ["--inh-caps=-all", "--ambient-caps=-all"]
    return ["setpriv", *identity, *wanted]


def end(name: str) -> bool:
    """By bubblewrap's child, the first process inside, with which all others die, and bubblewrap after it."""
    if not (folder(name) / "pid").exists():
        return False
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        pid = (folder(name) / "pid").read_text()
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
    while not (folder(name) / "ended").exists():
        time.sleep(0.01)
    return True


def remove(name: str) -> None:
    if not folder(name).exists():
        refuse(f"Error response from daemon: No such container: {name}")
    if fault("cannot be removed"):
        refuse(f"Error response from daemon: container {name} is in use")
    if (folder(name) / "pid").exists():
        end(name)
    for path in folder(name).iterdir():
        path.unlink()
    folder(name).rmdir()


def fault(name: str) -> Any:
    """What the test wants to go wrong: `{name: value}`, or `{name: [value, how often still]}`."""
    faults = json.loads(FAULTS.read_text()) if FAULTS.exists() else {}
    match faults.get(name):
        case [_, 0]:
            return None
        case [value, times]:
            FAULTS.write_text(json.dumps(faults | {name: [value, times - 1]}))
            return value
        case value:
            return value


def folder(name: str) -> Path:
    return STATE / "containers" / name


def record(argv: list[str]) -> None:
    with (STATE / "asked.jsonl").open("a") as file:
        file.write(json.dumps(argv) + "\n")


def in_bytes(size: str) -> int:
    assert size.endswith("m")
    return int(size[:-1]) * MIB


def refuse(sentence: str, code: int = 1) -> NoReturn:
    print(sentence, file=sys.stderr)
    print("Run 'docker run --help' for more information", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[2:])
