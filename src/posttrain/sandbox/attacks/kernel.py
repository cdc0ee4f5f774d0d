"""Kernel surface: tracing, namespaces, mounts, roots, and calls that most often had holes, by their x86_64 numbers."""

from posttrain.core.sandboxing import ResultClass
from posttrain.sandbox.attacks.attack import DENIED, OK, Attack, attempts

_EITHER: tuple[ResultClass, ...] = (OK, DENIED)
_CALLS = (
    ("trace of the parent", "syscall(101, 16, os.getppid(), 0, 0)"),
    ("trace of pid 1", "syscall(101, 0x4206, 1, 0, 0)"),
    ("memory of pid 1 by system call", "syscall(310, 1, 0, 0, 0, 0, 0)"),
    ("writing the memory of pid 1", "syscall(311, 1, 0, 0, 0, 0, 0)"),
    ("descriptors of pid 1", "syscall(438, os.pidfd_open(1), 1, 0)"),
    ("comparison of processes", "syscall(312, 1, os.getpid(), 0, 0, 0)"),
    ("advice about pid 1's memory", "syscall(440, os.pidfd_open(1), 0, 0, 4, 0)"),
    ("user namespace", "syscall(272, 0x10000000)"),
    ("mount namespace", "syscall(272, 0x00020000)"),
    ("network namespace", "syscall(272, 0x40000000)"),
    ("namespace by clone", "pid = syscall(56, 0x10000011, 0, 0, 0, 0)\nif pid == 0: os._exit(0)"),
    ("namespace of pid 1", "syscall(308, os.open('/proc/1/ns/mnt', 0), 0)"),
    ("namespace by descriptor", "syscall(308, os.pidfd_open(1), 0x20000)"),
    ("mount", "syscall(165, b'none', b'/run/box', b'tmpfs', 0, None)"),
    ("unmount", "syscall(166, b'/usr', 2)"),
    ("remount writable", "syscall(165, None, b'/', None, 0x20, None)"),
    ("new mount calls", "syscall(430, b'tmpfs', 0)"),
    ("a tree to mount", "syscall(428, -100, b'/', 1)"),
    ("chroot", "os.chroot('/usr')"),
    ("pivot of the root", "syscall(155, b'/', b'/')"),
    ("io_uring", "syscall(425, 8, ctypes.create_string_buffer(120))"),
    ("bpf", "syscall(321, 0, ctypes.create_string_buffer(b'\\1\\0\\0\\0\\4\\0\\0\\0\\4\\0\\0\\0\\1', 128), 128)"),
    ("perf", "syscall(298, ctypes.create_string_buffer(b'\\1\\0\\0\\0\\x70', 112), 0, -1, -1, 0)"),
    ("keys", "syscall(250, 0, -3, 1)"),
    ("a key added", "syscall(248, b'user', b'k', b'v', 1, -3)"),
    ("userfaultfd", "syscall(323, 1)"),
    ("handle of a file", "syscall(304, -100, ctypes.create_string_buffer(128), 0)"),
    ("kernel's log", "syscall(103, 3, ctypes.create_string_buffer(64), 64)"),
    ("a kernel module", "syscall(175, b'x', 1, b'')"),
    ("another kernel", "syscall(246, 0, 0, None, 0)"),
    ("reboot", "syscall(169, 0xFEE1DEAD, 672274793, 0, None)"),
    ("swap", "syscall(167, b'/dev/zero', 0)"),
    ("ports of the machine", "syscall(172, 3)"),
    ("personality", "syscall(135, 0x0040000)"),
    ("clock of the machine", "time.clock_settime(time.CLOCK_REALTIME, 0)"),
    ("name of the machine", "socket.sethostname('hostile')"),
    ("accounting", "syscall(163, b'x')"),
    ("file system watch", "syscall(300, 0, 0)"),
    ("32-bit numbers", "syscall(0x40000000 | 39)"),
    ("terminal injection", "import fcntl\nfcntl.ioctl(0, 0x5412, b'x')"),
    ("terminal injection with high bits", "syscall(16, 0, ctypes.c_ulong((1 << 32) | 0x5412), b'x')"),
)

ATTACKS = tuple(Attack(name, (), attempts(statement), _EITHER) for name, statement in _CALLS)
