"""What docker and podman are asked for: every wall, every limit, nothing of the program; and frames taken apart."""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.core.sandboxing import SandboxLimits
from posttrain.sandbox.container_command import Engine, Owner, name_of, owner_of
from posttrain.sandbox.container_engine import sentence
from posttrain.sandbox.container_execution import Frames
from posttrain.sandbox.decode import MalformedError
from posttrain.sandbox.inside.contained import ANSWER, ERRORS, OUTPUT, PIECE_BYTES, REPORT
from posttrain.sandbox.order import MIB, Order

DOCKER = Engine(Path("/usr/bin/docker"), False, "some-image")
PODMAN = Engine(Path("/usr/bin/podman"), True, "some-image", "runsc")
LIMITS = SandboxLimits(cpu_s=2.5, memory_mib=100, processes=7, disk_mib=3)
each_engine = pytest.mark.parametrize("engine", [DOCKER, PODMAN], ids=["docker", "podman"])


def options(engine: Engine, order: Order | None = None) -> list[str]:
    """Of a container, before its image."""
    command = engine.run("name", order or Order(LIMITS))
    return command[: command.index("some-image")]


def values(engine: Engine, option: str, order: Order | None = None) -> list[str]:
    """Of an option that may be there several times."""
    given = options(engine, order)
    return [value for name, value in pairwise(given) if name == option]


@each_engine
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--network", "none"),
        ("--cap-drop", "ALL"),
        ("--security-opt", "no-new-privileges"),
        ("--user", "65534:65534"),
        ("--ipc", "private"),
        ("--pull", "never"),
        ("--log-driver", "none"),
        ("--name", "name"),
        ("--label", "posttrain.sandbox"),
        ("--pids-limit", "8"),
        ("--cpus", "1"),
        ("--shm-size", "1m"),
    ],
)
def test_every_container_has_its_walls(engine: Engine, option: str, value: str) -> None:
    assert values(engine, option) == [value]


@each_engine
def test_the_system_is_read_only_and_one_place_is_not(engine: Engine) -> None:
    assert "--read-only" in options(engine)
    [place] = values(engine, "--tmpfs")
    assert place.startswith("/tmp:rw,exec,nosuid,nodev,mode=1777,size=3m")
    assert not {"--volume", "-v", "--mount", "--device", "--privileged", "--cap-add", "--pid"} & set(options(engine))


@each_engine
def test_there_is_no_swap_to_go_on_with(engine: Engine) -> None:
    assert values(engine, "--memory") == values(engine, "--memory-swap") == ["136m"]


@each_engine
def test_limits_of_each_process(engine: Engine) -> None:
    assert sorted(values(engine, "--ulimit")) == ["core=0", "cpu=4", f"fsize={3 * MIB}", "nofile=128"]


def test_standard_input_larger_than_the_disk_has_room_of_its_own() -> None:
    order = Order(LIMITS, stdin="x" * 5 * MIB)
    assert f"fsize={5 * MIB}" in values(DOCKER, "--ulimit", order)
    assert values(DOCKER, "--memory", order) == ["141m"]


def test_the_number_of_files_is_limited_where_the_engine_can() -> None:
    assert "nr_inodes=832" in values(DOCKER, "--tmpfs")[0]
    assert "nr_inodes" not in values(PODMAN, "--tmpfs")[0]


def test_podman_gives_no_more_than_docker() -> None:
    more = {"--read-only-tmpfs=false", "--http-proxy=false"}
    assert more <= set(options(PODMAN))
    assert not more & set(options(DOCKER))


def test_a_runtime_is_named_where_it_is_asked_for() -> None:
    assert values(PODMAN, "--runtime") == ["runsc"]
    assert "--runtime" not in options(DOCKER)


@each_engine
def test_nothing_of_the_program_is_on_the_command_line(engine: Engine) -> None:
    order = Order(LIMITS, argv=("SECRET",), files={"SECRET": "SECRET"}, stdin="SECRET")
    assert "SECRET" not in str(engine.run("name", order))
    assert "SECRET" not in str(engine.run("name", Order(LIMITS, source="SECRET", function="SECRET")))


@pytest.mark.skipif(not shutil.which("docker"), reason="there is no docker here")
@pytest.mark.parametrize("verb", ["run", "kill", "remove", "ask_out_of_memory", "ask_volumes", "list_names"])
def test_a_real_docker_knows_what_it_is_asked(verb: str, tmp_path: Path) -> None:
    """It looks at all options before it looks for its daemon, which is nowhere."""
    engine = Engine(Path(shutil.which("docker") or ""), False, "some-image", "runsc")
    commands = {
        "run": engine.run("name", Order(LIMITS)),
        "kill": engine.kill("name"),
        "remove": engine.remove("name"),
        "ask_out_of_memory": engine.ask_out_of_memory("name"),
        "ask_volumes": engine.ask_volumes(),
        "list_names": engine.list_names(),
    }
    environment = {"DOCKER_HOST": f"unix://{tmp_path}/none", "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(commands[verb], check=False, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "flag" not in done.stderr
    assert f"unix://{tmp_path}/none" in done.stderr


def test_a_name_says_whose_a_container_is() -> None:
    owner = Owner("0a1b2c3d.4026531836", 77, 123456)
    assert owner_of(name_of(owner, "00ff")) == owner


@pytest.mark.parametrize(
    "name", ["", "web", "posttrain", "posttrain-1-2-3-4", "posttrain-ab.1-x-3-4", "my-posttrain-ab.1-2-3-4"]
)
def test_names_of_others_have_no_owner(name: str) -> None:
    assert owner_of(name) is None


def test_a_sentence_is_without_the_advice_to_read_the_manual() -> None:
    said = b"docker: Error: no such image.\nSee 'docker run --help'.\n\nRun 'docker run --help' for more\n"
    assert sentence(said) == "docker: Error: no such image."


bodies = st.lists(st.tuples(st.sampled_from([OUTPUT, ERRORS, ANSWER, REPORT]), st.binary(max_size=40)), max_size=8)


@given(bodies, st.lists(st.integers(0, 200), max_size=12))
def test_frames_arrive_whole_however_they_are_cut(frames: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    stream = b"".join(kind + len(body).to_bytes(4, "big") + body for kind, body in frames)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reader = Frames()
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    assert [frame for piece in pieces for frame in reader.feed(piece)] == frames


@pytest.mark.parametrize("written", [b"Unable to find image", b"O" + (PIECE_BYTES + 1).to_bytes(4, "big")])
def test_what_is_no_frame_is_nothing_of_ours(written: bytes) -> None:
    with pytest.raises(MalformedError, match="where a frame should be"):
        list(Frames().feed(written))
