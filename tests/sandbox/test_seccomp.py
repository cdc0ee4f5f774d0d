"""The filter, run by a small interpreter of classic BPF, for both machines on any of them; and programs under it."""

from __future__ import annotations

import asyncio
import errno
import re
import shutil
import struct
from collections import Counter
from pathlib import Path

import pytest

from posttrain.core.sandboxing import ResultClass, RunResult, SandboxLimits
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.seccomp import ALLOW, KILL, MACHINES, Machine, filter_program, on_the_host

machines = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
HIGH = 0xFFFFFFFF << 32
MINUS_ONE = 0xFFFFFFFFFFFFFFFF
MAX_INSTRUCTIONS = 4096
LIMITS = SandboxLimits(wall_s=60.0, cpu_s=30.0, memory_mib=1024, processes=32, disk_mib=32)


def decision(machine: Machine, number: int, *arguments: int, arch: int | None = None) -> tuple[int, bool]:
    """What the filter decides for one system call, and whether it looked at an argument."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, machine.audit_arch if arch is None else arch, 0, *padded)
    program, position, loaded, looked = filter_program(machine), 0, 0, False
    while True:
        code, if_true, if_false, value = struct.unpack_from("=HBBI", program, position * 8)
        position += 1
        if code == 0x20:
            (loaded,) = struct.unpack_from("=I", data, value)
            looked = looked or value >= 16
        elif code == 0x06:
            return int(value), looked
        else:
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
            position += if_true if holds else if_false


def action(machine: Machine, number: int, *arguments: int, arch: int | None = None) -> int:
    return decision(machine, number, *arguments, arch=arch)[0]


def checked(machine: Machine, name: str, *arguments: int) -> int:
    return action(machine, machine.checked[name], *arguments)


def refusal(number: int) -> int:
    return 0x00050000 | number


def known(machine: Machine) -> list[tuple[str, int]]:
    """Every call that the filter knows by name."""
    return [
        call for group in (machine.allowed, machine.killed, machine.refused, machine.checked) for call in group.items()
    ]


@machines
def test_calls_that_no_honest_program_makes_end_it(machine: Machine) -> None:
    assert {action(machine, number) for number in machine.killed.values()} == {KILL}
    assert machine.killed.keys() >= {"ptrace", "mount", "chroot", "setns", "bpf", "keyctl", "process_vm_readv"}


@machines
def test_calls_that_a_library_can_do_without_are_refused(machine: Machine) -> None:
    assert {action(machine, number) for number in machine.refused.values()} == {refusal(errno.EPERM)}
    assert machine.refused.keys() >= {"unshare", "memfd_create", "io_uring_setup", "process_mrelease"}


@machines
def test_allowed_calls_pass_whatever_their_arguments(machine: Machine) -> None:
    numbers = machine.allowed.values()
    assert {action(machine, number) for number in numbers} == {ALLOW}
    assert {action(machine, number, *[MINUS_ONE] * 6) for number in numbers} == {ALLOW}


@machines
def test_calls_that_few_programs_but_honest_ones_make_are_allowed(machine: Machine) -> None:
    newer = {"futex_waitv", "rseq", "membarrier", "statx", "openat2", "close_range", "faccessat2", "fchmodat2", "mseal"}
    files = {"copy_file_range", "splice", "tee", "inotify_init1", "fallocate", "mknodat", "setxattr", "flock"}
    events = {"epoll_pwait2", "eventfd2", "timerfd_create", "signalfd4", "pidfd_open", "pidfd_send_signal"}
    own = {"landlock_restrict_self", "seccomp", "capset", "set_robust_list", "mbind", "mlock", "pkey_mprotect", "kill"}
    assert newer | files | events | own <= machine.allowed.keys()


@machines
def test_the_kernel_can_see_beforehand_what_is_always_allowed(machine: Machine) -> None:
    assert {decision(machine, number) for number in machine.allowed.values()} == {(ALLOW, False)}
    assert {decision(machine, number)[1] for number in machine.checked.values()} == {True}


@machines
def test_every_other_call_does_not_exist(machine: Machine) -> None:
    clone3, unassigned, later, last = 435, 403, 999, 0xFFFFFFFF
    numbers = {number for _, number in known(machine)}
    others = {*range(600), 0x3FFFFFFF, later, last} - numbers
    assert {clone3, unassigned, later} <= others
    assert {action(machine, number) for number in others} == {refusal(errno.ENOSYS)}


def test_no_call_exists_in_its_x32_variant() -> None:
    machine = MACHINES["x86_64"]
    variants = [0x40000000 | number for number in (*range(600), *dict(known(machine)).values())]
    assert {action(machine, number) for number in variants} == {refusal(errno.ENOSYS)}


@machines
def test_calls_of_another_machine_end_the_program(machine: Machine) -> None:
    assert action(machine, 0, arch=0x40000003) == KILL


@machines
def test_the_filter_is_short_enough_for_the_kernel(machine: Machine) -> None:
    assert len(filter_program(machine)) // 8 <= MAX_INSTRUCTIONS


@machines
def test_no_name_and_no_number_is_there_twice(machine: Machine) -> None:
    for counts in (Counter(name for name, _ in known(machine)), Counter(number for _, number in known(machine))):
        assert [entry for entry, count in counts.items() if count > 1] == []


@pytest.mark.parametrize(
    ("machine", "header"),
    [
        (MACHINES["x86_64"], Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")),
        (MACHINES["aarch64"], Path("/usr/include/asm-generic/unistd.h")),
    ],
    ids=MACHINES,
)
def test_numbers_are_those_of_the_kernels_headers(machine: Machine, header: Path) -> None:
    if not header.is_file():
        pytest.skip(f"{header} is not installed")
    defined = dict(re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)\s*$", header.read_text(), re.MULTILINE))
    defined["newfstatat"] = defined.get("newfstatat", defined.get("fstatat"))  # the generic header's word for it
    newest = max(map(int, filter(None, defined.values())))
    by_name = {name: number for name, number in known(machine) if number <= newest}
    assert len(by_name) > 250
    assert {name: int(defined[name]) for name in by_name} == by_name
    elsewhere = {name for other in MACHINES.values() for name, _ in known(other)} - dict(known(machine)).keys()
    assert elsewhere.isdisjoint(defined), "this machine has calls that only the other's table lists"


@machines
def test_processes_and_threads_may_be_made_but_no_namespaces(machine: Machine) -> None:
    fork, thread, new_user = 17, 0x3D0F00, 0x10000000
    assert checked(machine, "clone", fork) == ALLOW
    assert checked(machine, "clone", thread) == ALLOW
    assert checked(machine, "clone", new_user | fork) == refusal(errno.EPERM)


@machines
def test_terminal_injection_is_refused_even_with_high_bits_set(machine: Machine) -> None:
    assert checked(machine, "ioctl", 0, 0x5412) == refusal(errno.EPERM)
    assert checked(machine, "ioctl", 0, 0x541C) == refusal(errno.EPERM)
    assert checked(machine, "ioctl", 0, HIGH | 0x5412) == refusal(errno.EPERM)
    assert checked(machine, "ioctl", 0, 0x5401) == ALLOW


@machines
def test_only_local_and_internet_sockets_can_be_made(machine: Machine) -> None:
    unix, inet, inet6, netlink, packet, alg, vsock = 1, 2, 10, 16, 17, 38, 40
    assert {checked(machine, "socket", family) for family in (unix, inet, inet6)} == {ALLOW}
    for family in (netlink, packet, alg, vsock):
        assert checked(machine, "socket", family) == refusal(errno.EAFNOSUPPORT)


@machines
@pytest.mark.parametrize(
    "name",
    [
        *("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"),
        *("migrate_pages", "move_pages"),
    ],
)
def test_a_program_may_set_what_holds_for_itself_but_for_nobody_else(machine: Machine, name: str) -> None:
    assert checked(machine, name, 0, MINUS_ONE, MINUS_ONE) == ALLOW
    assert checked(machine, name, HIGH) == ALLOW, "the kernel reads a pid of 32 bits: this is 0 too"
    for pid in (1, 2, HIGH | 1, MINUS_ONE, 1 << 31):
        assert checked(machine, name, pid) == refusal(errno.EPERM)


@machines
@pytest.mark.parametrize(("name", "process", "others"), [("setpriority", 0, (1, 2)), ("ioprio_set", 1, (0, 2, 3))])
def test_a_program_may_be_nice_itself_but_not_for_a_group_or_a_user(
    machine: Machine, name: str, process: int, others: tuple[int, ...]
) -> None:
    assert checked(machine, name, process, 0, 19) == ALLOW
    assert checked(machine, name, HIGH | process, HIGH, 19) == ALLOW
    for pid in (1, HIGH | 1, MINUS_ONE):
        assert checked(machine, name, process, pid, 19) == refusal(errno.EPERM)
    for kind in (*others, MINUS_ONE):
        assert checked(machine, name, kind, 0, 19) == refusal(errno.EPERM)


@machines
def test_a_program_cannot_be_scheduled_together_with_another(machine: Machine) -> None:
    set_name, schedule_together = 15, 62
    assert checked(machine, "prctl", set_name) == ALLOW
    assert checked(machine, "prctl", schedule_together, 2, 1) == refusal(errno.EPERM)


@machines
def test_on_the_host_what_landlock_does_not_judge_is_refused(machine: Machine) -> None:
    host, eperm = on_the_host(machine), refusal(errno.EPERM)
    for name in ("fchmod", "fchmodat", "fchown", "utimensat", "lsetxattr", "inotify_add_watch", "socket"):
        assert action(host, host.refused[name], *[1] * 6) == eperm, name
    assert action(host, host.checked["socketpair"], 2, 1) == refusal(errno.EAFNOSUPPORT)
    changed = {name for name, number in known(machine) if action(machine, number, 1, 1) != action(host, number, 1, 1)}
    assert changed == set(host.refused) - set(machine.refused)


@machines
def test_on_the_host_a_pair_of_sockets_can_only_reach_its_other_half(machine: Machine) -> None:
    stream, datagram, raw, seqpacket, flags = 1, 2, 3, 5, 0x80800
    host = on_the_host(machine)
    for kind in (stream, seqpacket):
        assert {checked(host, "socketpair", 1, kind | more) for more in (0, flags)} == {ALLOW}
    for kind in (datagram, raw):
        assert {checked(host, "socketpair", 1, kind | more) for more in (0, flags)} == {refusal(errno.EPERM)}


def run(*argv: str, files: dict[str, str] | None = None) -> RunResult:
    return asyncio.run(LocalSandbox().run(argv, files=files, limits=LIMITS))


def output(*argv: str, files: dict[str, str] | None = None) -> str:
    result = run(*argv, files=files)
    assert result.result_class is ResultClass.OK, result
    return result.stdout


MANY_KINDS = """
import asyncio, mmap, os, select, signal, socket, sqlite3, subprocess, sys, tempfile, threading

threads = [threading.Thread(target=sum, args=[range(1000)]) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

with sqlite3.connect("data.db") as data:
    data.execute("PRAGMA journal_mode = WAL")
    data.execute("CREATE TABLE t (x)")
    data.executemany("INSERT INTO t VALUES (?)", [[n] for n in range(10)])
    assert data.execute("SELECT sum(x) FROM t").fetchone() == (45,)

with tempfile.TemporaryFile() as file:
    file.truncate(1 << 16)
    with mmap.mmap(file.fileno(), 1 << 16) as pages:
        pages[:3] = b"abc"
        pages.flush()
    assert file.read(3) == b"abc"

async def main():
    async def answer(reader, writer):
        writer.write(await reader.readline())
        writer.close()
    async with await asyncio.start_unix_server(answer, "socket"):
        reader, writer = await asyncio.open_unix_connection("socket")
        writer.write(b"said\\n")
        assert await reader.readline() == b"said\\n"
        writer.close()
    process = await asyncio.create_subprocess_exec("sh", "-c", "exit 3")
    assert await process.wait() == 3
    await asyncio.to_thread(os.listdir)

asyncio.run(main())
assert subprocess.run(["sort"], input=b"b\\na\\n", capture_output=True).stdout == b"a\\nb\\n"
os.sched_setaffinity(0, os.sched_getaffinity(0))
assert os.nice(1) == 1
print("done")
"""

ON_PID_1 = """
import os, resource
def refused(action, *arguments):
    try:
        action(*arguments)
    except PermissionError:
        return True
print([
    refused(os.sched_setaffinity, 1, {0}),
    refused(os.sched_setscheduler, 1, os.SCHED_BATCH, os.sched_param(0)),
    refused(os.sched_setparam, 1, os.sched_param(0)),
    refused(os.setpriority, os.PRIO_PROCESS, 1, 19),
    refused(os.setpriority, os.PRIO_PGRP, 0, 19),
    refused(os.setpriority, os.PRIO_USER, 0, 19),
    refused(resource.prlimit, 1, resource.RLIMIT_CPU, (1, 1)),
])
"""

IN_C = r"""
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

static void *nothing(void *argument) { return argument; }

int main(void) {
    pthread_t thread;
    sigset_t set;
    char byte;
    sigemptyset(&set);
    int made = pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0
        && epoll_create1(0) >= 0 && eventfd(0, 0) >= 0 && timerfd_create(CLOCK_MONOTONIC, 0) >= 0
        && signalfd(-1, &set, 0) >= 0 && inotify_init1(0) >= 0 && getrandom(&byte, 1, 0) == 1;
    long missing = syscall(999);
    printf("%d %ld %d\n", made, missing, errno == ENOSYS);
}
"""


def test_a_python_program_of_many_kinds_runs() -> None:
    assert output("python3", "main.py", files={"main.py": MANY_KINDS}) == "done\n"


def test_a_program_cannot_slow_pid_1_down() -> None:
    assert output("python3", "main.py", files={"main.py": ON_PID_1}) == f"{[True] * 7}\n"


def test_a_shell_and_its_programs_run() -> None:
    script = """
        set -e
        mkdir -p a/b; echo one > a/b/c; cp -a a d; mv d e; ln -s c a/b/l; touch -d 2001-01-01 e; chmod -R u+w e
        mkfifo pipe; cat a/b/c > pipe & cat pipe; wait
        tar -cf t.tar e && mkdir x && tar -xf t.tar -C x && diff -r e x/e && find x -type f
        seq 5 | sort -r | head -n 1; nice -n 3 true; timeout 5 true; sleep 0.01; df . > /dev/null; rm -r a e x
    """
    assert output("sh", "-c", script) == "one\nx/e/b/c\n5\n"


@pytest.mark.skipif(shutil.which("git", path="/usr/bin") is None, reason="no git in /usr/bin")
def test_git_keeps_a_history() -> None:
    script = """
        set -e
        git init -q . && git config user.name me && git config user.email me@example.org
        echo one > file && git add file && git commit -q -m first && git gc -q && git log --format=%s && git fsck
    """
    assert output("sh", "-c", script) == "first\n"


@pytest.mark.skipif(shutil.which("gcc", path="/usr/bin") is None, reason="no gcc in /usr/bin")
def test_a_c_program_is_compiled_and_runs_and_finds_no_call_of_the_future() -> None:
    assert output("sh", "-c", "gcc -pthread main.c -o main && ./main", files={"main.c": IN_C}) == "1 -1 1\n"
