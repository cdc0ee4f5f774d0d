"""Files and secrets: the host's files, environment and memory by path, link and /proc; writes and modes; devices."""

from posttrain.sandbox.attacks.attack import DENIED, ERROR, OK, Attack, Run, attempts, program, script

_SPILL = (
    "found = []\n"
    "for path in {paths}:\n"
    "    try:\n"
    "        with open(path, errors='replace') as file: print(file.read(20_000))\n"
    "    except OSError: pass\n"
)
_ENVIRONMENTS = "[f'/proc/{n}/environ' for n in (1, 2, 3, os.getpid(), os.getppid(), world['pid'])]"

ATTACKS = (
    Attack("own environment", (8,), program("print(dict(os.environ))")),
    Attack("environment of a program", (8,), Run(("env",))),
    Attack("environments in /proc", (8,), program(_SPILL.format(paths=_ENVIRONMENTS))),
    Attack(
        "environment in memory",
        (7, 8),
        program(
            "libc = ctypes.CDLL(None)\nlibc.getenv.restype = ctypes.c_char_p\nprint(libc.getenv(b'POSTTRAIN_CANARY'))"
        ),
    ),
    Attack("secret file by path", (8,), program(_SPILL.format(paths="[world['secret_file']]"))),
    Attack(
        "secret file by link",
        (8, 25),
        program("os.symlink(world['secret_file'], 'l')\n" + _SPILL.format(paths="['l']")),
    ),
    Attack("secret file by hard link", (8, 25), attempts("os.link(world['secret_file'], 'hard')")),
    Attack("secret file by dots", (8, 25), program(_SPILL.format(paths="['../' * 30 + world['secret_file'][1:]]"))),
    Attack(
        "secret file by the roots in /proc",
        (8, 25),
        program(
            _SPILL.format(
                paths="[f'/proc/{p}/{w}' + world['secret_file'] for p in (1, 'self', 2) for w in ('root', 'cwd')]"
            )
        ),
    ),
    Attack(
        "secret file by a descriptor of a folder",
        (8,),
        attempts("os.open(world['secret_file'], os.O_RDONLY, dir_fd=os.open('/', os.O_RDONLY))"),
    ),
    Attack("secret file by a shell", (8,), program("os.system('cat ' + world['secret_file'])")),
    Attack(
        "passwords of the host",
        (8,),
        attempts("open('/etc/passwd')", "open('/etc/shadow')", "open('/etc/hostname')"),
    ),
    Attack(
        "homes of the host", (8,), attempts("os.listdir('/home')", "os.listdir('/var')", "os.listdir('/sys/kernel')")
    ),
    Attack(
        "hidden tests by a walk",
        (8,),
        program(
            "return [os.path.join(top, name) for top, _, names in os.walk('/') for name in names\n"
            "        if 'posttrain-canary' in name or 'hidden_tests' in name]"
        ),
    ),
    Attack(
        "history of the workspace", (23,), attempts("os.listdir('.git')", "os.listdir(os.path.expanduser('~/.cache'))")
    ),
    Attack("memory of pid 1", (7,), attempts("open('/proc/1/mem', 'rb').read(1)", "open('/proc/1/maps').read(1)")),
    Attack("memory of the parent", (7,), attempts("open(f'/proc/{os.getppid()}/mem', 'rb').read(1)")),
    Attack(
        "kernel's memory",
        (8,),
        attempts("open('/proc/kcore', 'rb')", "open('/dev/mem', 'rb')", "open('/proc/kallsyms')"),
    ),
    Attack("writing to the canary", (25,), attempts("open(world['canary'], 'w').write('hostile')")),
    Attack("deleting the canary", (25,), attempts("os.remove(world['canary'])")),
    Attack(
        "writing beside the canary",
        (25,),
        program(
            "try:\n    os.makedirs(world['folder'], exist_ok=True)\n"
            "    open(world['folder'] + '/planted', 'w').write('x')\nexcept OSError: pass"
        ),
    ),
    Attack(
        "writing to the system", (25,), attempts("open('/usr/lib/x', 'w')", "open('/x', 'w')", "open('/etc/x', 'w')")
    ),
    Attack(
        "writing by a program",
        (25,),
        script("import shutil\ntry:\n    open('/usr/bin/x', 'w')\n    print('could write')\nexcept OSError: pass"),
    ),
    Attack("modes of the system", (25,), attempts("os.chmod('/usr/bin/env', 0o777)", "os.chmod('/', 0o777)")),
    Attack(
        "owners of the system", (25,), attempts("os.chown('/usr/bin/env', os.getuid(), -1)", "os.utime('/usr/bin/env')")
    ),
    Attack("ownership given away", (25,), attempts("open('a', 'w').close()\nos.chown('a', 12345, 12345)")),
    Attack(
        "device nodes",
        (25,),
        attempts("os.mknod('d', 0o60666, os.makedev(254, 0))", "os.mknod('c', 0o20666, os.makedev(1, 1))"),
    ),
    Attack(
        "disks of the host", (25,), attempts("open('/dev/sda', 'rb')", "open('/dev/vda', 'rb')", "open('/dev/kmsg')")
    ),
    Attack("becoming root", (25,), attempts("os.setuid(0)", "os.setgid(0)", "os.setgroups([0])"), (OK, DENIED)),
    Attack(
        "helper that becomes root",
        (25,),
        program(
            "import shutil\nshutil.copy('/usr/bin/id', 'id')\nos.chmod('id', 0o6755)\n"
            "out = os.popen('./id -u; sudo -n id -u; su -c \"id -u\" </dev/null').read().split()\n"
            "return ['root'] if '0' in out else []"
        ),
        (OK, ERROR),
    ),
)
