"""Network and ipc: every socket family, loopback, abstract names, pipes to the host, shared memory of System V."""

from posttrain.sandbox.attacks.attack import DENIED, OK, Attack, attempts, program, script

_REACH = """
import json
world = json.load(open("world.json"))
try:
    socket.create_connection(("127.0.0.1", world["port"]), 0.5)
    print("could connect")
except OSError:
    pass
"""
_EITHER = (OK, DENIED)

ATTACKS = (
    Attack(
        "listener on loopback", (10,), attempts("socket.create_connection(('127.0.0.1', world['port']), 0.5)"), _EITHER
    ),
    Attack("listener on loopback by a program", (10,), script(_REACH), _EITHER),
    Attack(
        "listener on loopback by name",
        (10,),
        attempts("socket.create_connection(('localhost', world['port']), 0.5)"),
        _EITHER,
    ),
    Attack(
        "listener on IPv6",
        (10,),
        attempts(
            "socket.create_connection(('::1', world['port']), 0.5)",
            "socket.create_connection(('::ffff:127.0.0.1', world['port']), 0.5)",
        ),
        _EITHER,
    ),
    Attack(
        "datagram",
        (10,),
        program("try: socket.socket(2, 2).sendto(b'x', ('127.0.0.1', world['udp_port']))\nexcept OSError: pass"),
        _EITHER,
    ),
    Attack("the internet", (10,), attempts("socket.create_connection(('192.0.2.1', 80), 0.3)"), _EITHER),
    Attack("names of the internet", (10,), attempts("socket.getaddrinfo('example.com', 80)"), _EITHER),
    Attack("metadata of a cloud", (10,), attempts("socket.create_connection(('169.254.169.254', 80), 0.3)"), _EITHER),
    Attack("abstract socket", (10,), attempts("socket.socket(1, 1).connect('\\0' + world['abstract'])"), _EITHER),
    Attack("socket file", (10, 25), attempts("socket.socket(1, 1).connect(world['socket_path'])"), _EITHER),
    Attack(
        "sockets of daemons",
        (10,),
        attempts(
            *(
                f"socket.socket(1, 1).connect({p!r})"
                for p in ("/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private")
            )
        ),
        _EITHER,
    ),
    Attack("raw packets", (10,), attempts("socket.socket(17, 3)", "socket.socket(2, 3, 1)"), _EITHER),
    Attack("host of a virtual machine", (10,), attempts("socket.socket(40, 1)"), _EITHER),
    Attack("netlink", (10,), attempts("socket.socket(16, 3, 0)", "socket.socket(16, 3, 12)"), _EITHER),
    Attack(
        "crypto, bluetooth, CAN and XDP sockets",
        (10,),
        attempts(*(f"socket.socket({f}, {t})" for f, t in ((38, 5), (31, 3), (29, 3), (44, 3), (30, 1)))),
        _EITHER,
    ),
    Attack("shared memory that outlives", (6,), attempts("syscall(29, 0x5EC, 4096, 0o1666)"), _EITHER),
    Attack("semaphores that outlive", (6,), attempts("syscall(64, 0x5EC, 1, 0o1666)"), _EITHER),
    Attack("messages that outlive", (6,), attempts("syscall(68, 0x5EC, 0o1666)"), _EITHER),
    Attack("message queue", (6,), attempts("syscall(240, b'mq', 0o102, 0o666, None)"), _EITHER),
)
