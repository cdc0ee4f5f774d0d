"""Processes and signals: endless, deaf, stopped, disguised, left behind, and aimed at others."""

from posttrain.sandbox.attacks.attack import (
    BRIEF_CPU,
    CPU,
    DENIED,
    ERROR,
    OK,
    SHORT,
    SIGNAL,
    TIME,
    Attack,
    attempts,
    loading,
    program,
    script,
)

_DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
"""
_DEAF = """
for number in range(1, 65):
    if number not in (9, 19, 32, 33):
        signal.signal(number, signal.SIG_IGN)
"""

ATTACKS = (
    Attack("endless loop", (24,), program("while True: pass"), (TIME,), SHORT),
    Attack("endless loop while loading", (24,), loading("while True: pass"), (TIME,), SHORT),
    Attack("endless loop of a program", (24,), script("while True: pass"), (TIME,), SHORT),
    Attack("endless loop on the clock of the CPU", (24,), program("while True: pass"), (CPU,), BRIEF_CPU),
    Attack(
        "endless loop deaf to the CPU's signal",
        (24,),
        program("signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"),
        (CPU,),
        BRIEF_CPU,
    ),
    Attack("sleep", (24,), program("time.sleep(100)"), (TIME,), SHORT),
    Attack("deaf to every signal", (24,), program(_DEAF + "time.sleep(100)"), (TIME,), SHORT),
    Attack(
        "blocks every signal",
        (24,),
        program("signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(100)"),
        (TIME,),
        SHORT,
    ),
    Attack(
        "swallows every exception",
        (24,),
        program("while True:\n    try:\n        while True: pass\n    except BaseException: pass"),
        (TIME,),
        SHORT,
    ),
    Attack("stops itself", (24,), program("os.kill(os.getpid(), signal.SIGSTOP)"), (TIME,), SHORT),
    Attack(
        "stops its children",
        (24,),
        program("if os.fork() == 0: os.kill(0, signal.SIGSTOP)\ntime.sleep(100)"),
        (TIME,),
        SHORT,
    ),
    Attack("becomes another program", (6,), program("os.execv('/usr/bin/sleep', ['sleep', '100'])"), (TIME,), SHORT),
    Attack("daemon by double fork", (6,), program(_DAEMON)),
    Attack("daemon of a program", (6,), script(_DAEMON)),
    Attack("deaf daemon", (6,), program(_DEAF + _DAEMON)),
    Attack("child that holds the pipes", (6,), program("if os.fork() == 0: time.sleep(60)")),
    Attack("child of a program that holds the pipes", (6,), script("if os.fork() == 0: time.sleep(60)")),
    Attack("thread that stays", (6,), program("threading.Thread(target=time.sleep, args=[60]).start()")),
    Attack(
        "timer that answers later", (6,), program("signal.setitimer(signal.ITIMER_REAL, 0.01)\nreturn []"), (OK, SIGNAL)
    ),
    Attack(
        "hook at the end",
        (6,),
        program("import atexit\natexit.register(time.sleep, 60)\nreturn []"),
        (OK, TIME),
        SHORT,
    ),
    Attack("kill of everything", (6,), program("os.fork()\nos.kill(-1, 9)"), (OK, ERROR, SIGNAL, DENIED)),
    Attack("kill of its group", (6,), program("os.kill(0, 9)"), (SIGNAL, OK)),
    Attack("kill of its parent", (6,), program("os.kill(os.getppid(), 9)"), (OK, ERROR, SIGNAL)),
    Attack(
        "every signal to pid 1",
        (6,),
        program("for n in range(1, 32):\n    try: os.kill(1, n)\n    except OSError: pass"),
    ),
    Attack("kill of a host process", (6,), attempts("os.kill(world['pid'], 0)", "os.kill(world['pid'], 9)")),
    Attack(
        "kill of a host process by descriptor",
        (6,),
        attempts("signal.pidfd_send_signal(os.pidfd_open(world['pid']), 9)"),
        (OK, DENIED),
    ),
    Attack(
        "priority above all",
        (24,),
        attempts("os.nice(-10)", "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"),
    ),
)
