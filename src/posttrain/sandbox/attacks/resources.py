"""Resources: memory, disk, inodes, output and processes, each filled in several ways, with innocents beside."""

import dataclasses

from posttrain.sandbox.attacks.attack import (
    DENIED,
    DISK,
    ERROR,
    MEMORY,
    OK,
    OUTPUT,
    PATIENT,
    PROCESSES,
    SHORT,
    SIGNAL,
    TIME,
    Attack,
    attempts,
    loading,
    program,
    script,
)

_SEVERAL = dataclasses.replace(PATIENT, processes=8)
_MEMORY_BY_MANY = """
read, write = os.pipe()
for _ in range(5):
    if os.fork() == 0:
        block = bytearray(60 << 20)
        for page in range(0, len(block), 4096): block[page] = 1
        os.write(write, b"x")
        time.sleep(60)
os.close(write)
held, until = 0, time.monotonic() + 10
import select
while held < 5 and time.monotonic() < until and select.select([read], [], [], 1.0)[0]:
    held += len(os.read(read, 16))
return ["hold 300 MiB of 96 together"] if held >= 5 else []
"""
_INODES = """
try:
    for number in range(20_000):
        open(str(number), "w").close()
except OSError:
    return []
return ["make 20000 files on 2 MiB of disk"]
"""
_MEMFDS = """
held = []
try:
    for _ in range(8):
        held.append(os.memfd_create("m"))
        os.write(held[-1], bytes(1 << 20))
        os.posix_fallocate(held[-1], 0, 60 << 20)
except (OSError, AttributeError):
    return []
return ["hold 480 MiB in memory files"]
"""

ATTACKS = (
    Attack("memory at once", (24,), program("return [len(bytearray(10 ** 11))]"), (MEMORY,), beside=True),
    Attack(
        "memory bit by bit", (24,), program("a = []\nwhile True: a.append(bytearray(1 << 20))"), (MEMORY,), beside=True
    ),
    Attack("memory while loading", (24,), loading("a = []\nwhile True: a.append(bytearray(1 << 20))"), (MEMORY,)),
    Attack("memory of a program", (24,), script("a = []\nwhile True: a.append(bytearray(1 << 20))"), (MEMORY,)),
    Attack(
        "memory by shared mappings",
        (24,),
        program("import mmap\nreturn [len([mmap.mmap(-1, 32 << 20) for _ in range(9)])]"),
        (MEMORY, OK),
    ),
    Attack("memory by many processes", (24,), program(_MEMORY_BY_MANY), (OK, MEMORY, SIGNAL), _SEVERAL, beside=True),
    Attack("memory files", (24,), program(_MEMFDS), (OK, MEMORY, DISK), beside=True),
    Attack(
        "locked memory",
        (24,),
        attempts("syscall(149, ctypes.create_string_buffer(1 << 20), 1 << 20)", "syscall(151, 3)"),
        (OK, DENIED),
    ),
    Attack("a number too large", (24,), program("while True: 9 ** 9 ** 9"), (TIME, MEMORY), SHORT),
    Attack(
        "a pattern that never ends", (24,), program("import re\nre.match('(a+)+$', 'a' * 64 + 'b')"), (TIME,), SHORT
    ),
    Attack(
        "disk by one file",
        (24,),
        program("with open('a', 'wb') as a:\n    while True: a.write(bytes(1 << 16))"),
        (DISK,),
        beside=True,
    ),
    Attack(
        "disk by many files",
        (24,),
        program("for n in range(99): open(str(n), 'wb').write(bytes(1 << 18))"),
        (DISK,),
        beside=True,
    ),
    Attack(
        "disk while loading", (24,), loading("for n in range(99): open(str(n), 'wb').write(bytes(1 << 18))"), (DISK,)
    ),
    Attack("disk of a program", (24,), script("for n in range(99): open(str(n), 'wb').write(bytes(1 << 18))"), (DISK,)),
    Attack(
        "shared memory folder",
        (24,),
        program("for n in range(99): open(f'/dev/shm/{n}', 'wb').write(bytes(1 << 18))"),
        (DISK, ERROR),
    ),
    Attack(
        "temporary folder", (24,), program("for n in range(99): open(f'/tmp/{n}', 'wb').write(bytes(1 << 18))"), (DISK,)
    ),
    Attack(
        "disk by allocation",
        (24,),
        program("with open('a', 'wb') as a: os.posix_fallocate(a.fileno(), 0, 1 << 30)"),
        (DISK,),
    ),
    Attack("files without end", (24,), program(_INODES), (OK, DISK), beside=True),
    Attack("flood of output", (24,), program("while True: print('x' * 1000)"), (OUTPUT,), beside=True),
    Attack("flood of errors", (24,), program("while True: os.write(2, bytes(1 << 16))"), (OUTPUT,)),
    Attack("flood of a program", (24,), script("while True: print('x' * 1000)"), (OUTPUT,)),
    Attack(
        "flood by children",
        (24,),
        program("for _ in range(2): os.fork()\nwhile True: os.write(1, bytes(1 << 12))"),
        (OUTPUT,),
    ),
    Attack("flood of the system's own", (24,), program("os.system('yes')"), (OUTPUT,)),
    Attack("fork bomb", (24,), loading("while True: os.fork()"), (PROCESSES, DENIED), beside=True),
    Attack("fork bomb of a program", (24,), script("while True: os.fork()"), (PROCESSES,)),
    Attack(
        "fork bomb that holds on",
        (24,),
        program("while True:\n    try: os.fork()\n    except OSError: pass"),
        (TIME, DENIED),
        SHORT,
        beside=True,
    ),
    Attack(
        "thread bomb",
        (24,),
        program("while True: threading.Thread(target=time.sleep, args=[60]).start()"),
        (PROCESSES, MEMORY),
        beside=True,
    ),
    Attack(
        "spawn bomb",
        (24,),
        program("import subprocess\nreturn [len([subprocess.Popen(['sleep', '60']) for _ in range(50)])]"),
        (PROCESSES,),
    ),
    Attack(
        "descriptors without end", (24,), program("held = []\nwhile True: held.append(os.open('/dev/null', 0))"), (OK,)
    ),
    Attack(
        "raised limits",
        (24,),
        attempts(
            *(
                f"import resource\nresource.setrlimit(resource.{n}, (-1, -1))"
                for n in ("RLIMIT_AS", "RLIMIT_NPROC", "RLIMIT_FSIZE", "RLIMIT_CPU")
            )
        ),
    ),
    Attack(
        "limits of pid 1",
        (24,),
        attempts("import resource\nresource.prlimit(1, resource.RLIMIT_AS, (1, 1))"),
        (OK, DENIED),
    ),
)
