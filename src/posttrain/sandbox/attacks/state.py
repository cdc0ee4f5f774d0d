"""State and inherited descriptors: what one execution leaves for the next, and what it was handed by accident."""

from posttrain.core.sandboxing import ResultClass
from posttrain.sandbox.attacks.attack import DENIED, ERROR, OK, SIGNAL, Attack, Call, loading, program


def _left(
    name: str, plant: str, look: str, rows: tuple[int, ...] = (6,), ends: tuple[ResultClass, ...] = (OK,)
) -> Attack:
    return Attack(name, rows, program(plant), ends, then=Call(program(look).source))


_FILES = (
    "places = [d for d in ('.', '/tmp', '/dev/shm', '/run/box') if os.path.isdir(d)]\n"
    "return [p for d in places for p in os.listdir(d) if 'planted' in p]"
)
_DESCRIPTORS = """
found = []
for fd in range(3, 1024):
    try:
        path = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        path = ""
    try:
        kind = os.fstat(fd).st_mode & 0o170000
    except OSError:
        continue
    if kind in (0o140000, 0o040000) and "socket" not in path:
        found.append(f"descriptor {fd}: {path or oct(kind)}")
return found
"""
_MEMORY_OF_HARNESS = """
import gc
found = [o for o in gc.get_objects() if type(o) in (dict, list, tuple)]
frame = sys._getframe()
while frame:
    found.append(frame.f_locals)
    frame = frame.f_back
print([str(o)[:5_000] for o in found][:3_000])
"""

ATTACKS = (
    _left("file in the working folder", "open('planted', 'w').close()", _FILES),
    _left("file in the temporary folder", "open('/tmp/planted', 'w').close()", _FILES),
    _left("file in shared memory", "open('/dev/shm/planted', 'w').close()", _FILES),
    _left(
        "module planted",
        "sys.modules['planted'] = sys",
        "return ['planted'] if 'planted' in sys.modules else []",
    ),
    _left(
        "module shadowed",
        "open('colorsys.py', 'w').write('planted = 1')",
        "import colorsys\nreturn ['shadowed'] if hasattr(colorsys, 'planted') else []",
        (3, 6),
    ),
    _left(
        "start-up hook",
        "for n in ('sitecustomize.py', 'usercustomize.py', 'x.pth'): open(n, 'w').write('import os; os.planted = 1')",
        "return ['hook ran'] if hasattr(os, 'planted') else []",
        (3, 6),
    ),
    _left(
        "builtin patched",
        "import builtins\nbuiltins.planted = 1",
        "import builtins\nreturn ['patched'] if hasattr(builtins, 'planted') else []",
        (6, 22),
    ),
    _left(
        "random state fixed",
        "import random\nrandom.seed(7)",
        "import random\na = random.random()\nreturn ['seed stayed'] if a == random.Random(7).random() else []",
        (22,),
    ),
    _left(
        "environment changed",
        "os.environ['PLANTED'] = '1'\nos.putenv('PLANTED', '1')",
        "return ['variable'] if 'PLANTED' in os.environ else []",
        (3, 6),
    ),
    _left(
        "path changed",
        "sys.path.insert(0, '/tmp/planted')",
        "return ['path'] if '/tmp/planted' in sys.path else []",
        (3, 6),
    ),
    _left("mask changed", "os.umask(0)", "return ['mask'] if os.umask(0o22) == 0 else []"),
    _left(
        "signal handler left",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "return ['handler'] if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN else []",
    ),
    _left(
        "recursion limit left",
        "sys.setrecursionlimit(77_777)",
        "return ['limit'] if sys.getrecursionlimit() == 77_777 else []",
        (22,),
    ),
    _left(
        "process left",
        "if os.fork() == 0:\n    os.setsid()\n    sys.stdout.close()\n    time.sleep(60)",
        "found = []\n"
        "for pid in range(2, 4000):\n"
        "    try:\n"
        "        os.kill(pid, 0)\n"
        "        if pid not in (os.getpid(), os.getppid()): found.append(pid)\n"
        "    except OSError: pass\n"
        "return found",
    ),
    _left("folder nobody may open", "os.mkdir('planted')\nos.chmod('planted', 0)", _FILES),
    Attack("inherited sockets and folders", (7,), program(_DESCRIPTORS), (OK,)),
    Attack(
        "writing to every descriptor",
        (5, 7),
        program("for fd in range(3, 1024):\n    try: os.write(fd, b'hostile')\n    except OSError: pass"),
        (OK, DENIED, ERROR),
    ),
    Attack("variables of the harness", (7,), program(_MEMORY_OF_HARNESS), (OK, ERROR, ResultClass.OUTPUT_LIMIT)),
    Attack(
        "threads of the harness",
        (7,),
        program("return [t.name for t in threading.enumerate() if t is not threading.main_thread()]"),
    ),
    Attack(
        "modules of the harness's side",
        (7,),
        program("return [m for m in sys.modules if m.startswith(('pytest', 'torch', 'posttrain.run', 'asyncio'))]"),
    ),
    Attack(
        "patched while loading",
        (22,),
        loading(
            "import builtins, json\n"
            "time.monotonic = lambda: 0.0\n"
            "json.loads = None\n"
            "builtins.print = builtins.open = None\n"
            "os.write = lambda *a: 0"
        ),
        (OK, ERROR, DENIED, SIGNAL, ResultClass.TIME_LIMIT, ResultClass.CPU_LIMIT),
    ),
)
