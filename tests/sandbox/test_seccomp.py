"""The filter, run by a small interpreter of classic BPF, for both machines on any of them."""

from __future__ import annotations

import errno
import struct

import pytest

from posttrain.sandbox.seccomp import ALLOW, KILL, MACHINES, Machine, filter_program

machines = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


def action(machine: Machine, number: int, *arguments: int, arch: int | None = None) -> int:
    """What the filter decides for one system call."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, machine.audit_arch if arch is None else arch, 0, *padded)
    program, position, loaded = filter_program(machine), 0, 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("=HBBI", program, position * 8)
        position += 1
        if code == 0x20:
            (loaded,) = struct.unpack_from("=I", data, value)
        elif code == 0x06:
            return int(value)
        else:
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
            position += if_true if holds else if_false


def refusal(number: int) -> int:
    return 0x00050000 | number


@machines
def test_calls_that_no_honest_program_makes_end_it(machine: Machine) -> None:
    assert {action(machine, number) for number in machine.killed} == {KILL}


@machines
def test_calls_that_a_library_can_do_without_are_refused(machine: Machine) -> None:
    assert {action(machine, number) for number in machine.refused} == {refusal(errno.EPERM)}
    assert action(machine, machine.clone3) == refusal(errno.ENOSYS)


@machines
def test_processes_and_threads_may_be_made_but_no_namespaces(machine: Machine) -> None:
    fork, thread, new_user = 17, 0x3D0F00, 0x10000000
    assert action(machine, machine.clone, fork) == ALLOW
    assert action(machine, machine.clone, thread) == ALLOW
    assert action(machine, machine.clone, new_user | fork) == refusal(errno.EPERM)


@machines
def test_terminal_injection_is_refused_even_with_high_bits_set(machine: Machine) -> None:
    assert action(machine, machine.ioctl, 0, 0x5412) == refusal(errno.EPERM)
    assert action(machine, machine.ioctl, 0, 0xFFFFFFFF00005412) == refusal(errno.EPERM)
    assert action(machine, machine.ioctl, 0, 0x5401) == ALLOW


@machines
def test_only_local_and_internet_sockets_can_be_made(machine: Machine) -> None:
    unix, inet, inet6, netlink, packet, alg, vsock = 1, 2, 10, 16, 17, 38, 40
    assert {action(machine, machine.socket, family) for family in (unix, inet, inet6)} == {ALLOW}
    for family in (netlink, packet, alg, vsock):
        assert action(machine, machine.socket, family) == refusal(errno.EAFNOSUPPORT)


@machines
def test_a_program_may_limit_itself_but_nobody_else(machine: Machine) -> None:
    assert action(machine, machine.prlimit64, 0) == ALLOW
    assert action(machine, machine.prlimit64, 1) == refusal(errno.EPERM)


@machines
def test_calls_of_another_machine_end_the_program(machine: Machine) -> None:
    assert action(machine, 0, arch=0x40000003) == KILL


def test_the_x32_variant_of_a_call_is_refused() -> None:
    assert action(MACHINES["x86_64"], 0x40000000 | 101) == refusal(errno.ENOSYS)


@machines
def test_ordinary_calls_pass(machine: Machine) -> None:
    denied = {*machine.killed, *machine.refused, machine.clone3, machine.socket, machine.prlimit64}
    assert {action(machine, number) for number in set(range(500)) - denied} == {ALLOW}
