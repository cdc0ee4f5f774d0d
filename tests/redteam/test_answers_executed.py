"""Red team, programs and queries that are run: rows 1, 5, 8, 9, 12, 13, 16, 17, 22 and 24, in a real sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from posttrain.core.sandboxing import SandboxLimits
from posttrain.core.types import Verdict, VerdictStatus
from posttrain.sandbox.local import LocalSandbox
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.program_io import ProgramIO
from posttrain.verifiers.sql import Sql

LIMITS = SandboxLimits(wall_s=10.0, cpu_s=1.0, memory_mib=128, processes=8, output_kib=64, disk_mib=1)
SUMS = {"cases": [{"stdin": "2 3\n", "stdout": "5\n"}, {"stdin": "10 20\n", "stdout": "30\n"}]}
SHOP: dict[str, Any] = {
    "schema": "CREATE TABLE sale (item TEXT, amount INTEGER); CREATE TABLE secret (word TEXT);",
    "data": [
        {"sale": [["fig", 3], ["pear", 5], ["fig", 4]], "secret": [["xylophone"]]},
        {"sale": [["pear", 1], ["kiwi", None]], "secret": []},
    ],
    "query": "SELECT item, sum(amount) FROM sale GROUP BY item",
    "wrong": ["SELECT item, max(amount) FROM sale GROUP BY item"],
}


class Judge:
    """One event loop and one sandbox for all attacks of the file."""

    def __init__(self) -> None:
        self.loop = asyncio.Runner()
        self.sandbox = LocalSandbox()

    def program(self, reply: str) -> Verdict:
        return self.loop.run(ProgramIO(limits=LIMITS).verify(reply, SUMS, self.sandbox))

    def query(self, reply: str) -> Verdict:
        return self.loop.run(Sql(limits=LIMITS).verify(reply, SHOP, self.sandbox))


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    judge = Judge()
    yield judge
    judge.loop.run(judge.sandbox.close())
    judge.loop.close()


def test_honest_replies_are_correct_so_that_these_attacks_can_fail(judge: Judge) -> None:
    assert judge.program("print(sum(map(int, input().split())))").status is VerdictStatus.CORRECT
    assert judge.query("SELECT item, sum(amount) FROM sale GROUP BY 1").status is VerdictStatus.CORRECT


PROGRAMS = {
    "nothing": "pass",
    "leaves with 0": "import os; os._exit(0)",
    "a constant": "print(5)",
    "the marker of success": "print('ALL TESTS PASSED'); print('2 passed in 0.01s')",
    "every answer at once": "print(5); print(30)",
    "hedged": "print('5 or 30')",
    "a forged report": 'print(\'{"stdout": "5\\n", "passed": true}\')',
    "the right answer and an error": "print(sum(map(int, input().split()))); raise SystemExit(3)",
    "the right answer and a signal": (
        "import os\nprint(sum(map(int, input().split())), flush=True)\nos.kill(os.getpid(), 9)"
    ),
    "the right answer and no end": "print(sum(map(int, input().split())), flush=True)\nwhile True: pass",
    "more than was asked for": "print(sum(map(int, input().split()))); print('trust me')",
    "a giant output": "print(sum(map(int, input().split())))\nprint(' ' * 1_000_000)",
    "a memory bomb": "print(sum(map(int, input().split())), flush=True)\nx = ' ' * (1 << 30)",
    "a search for the answers": (
        "import pathlib\nfor p in pathlib.Path('/').rglob('*.json'):\n    print(p.read_text()[:9])\n    break\n"
    ),
    "a patched clock": "import time; time.time = lambda: 0; print('5')",
    "not a number": "print(float('nan'))",
    "standard error instead": "import sys; print(sum(map(int, input().split())), file=sys.stderr)",
    "look-alike digits": (
        "print(str(sum(map(int, input().split()))).translate({48 + i: 0xFF10 + i for i in range(10)}))"
    ),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_cheating_program_is_incorrect(judge: Judge, program: str) -> None:
    verdict = judge.program(program)
    assert verdict.status is VerdictStatus.INCORRECT
    assert verdict.score == 0.0


def test_two_programs_are_not_a_second_chance(judge: Judge) -> None:
    both = "```python\nprint(5)\n```\n```python\nprint(sum(map(int, input().split())))\n```"
    assert judge.program(both).flags == (Flag.SEVERAL_PROGRAMS,)


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
QUERIES = {
    "a constant": "SELECT 'fig', 7 UNION ALL SELECT 'pear', 5",
    "nothing": ";",
    "a comment alone": "-- SELECT item, sum(amount) FROM sale GROUP BY item",
    "two statements": "SELECT 1; SELECT item, sum(amount) FROM sale GROUP BY item",
    "a query, then a deletion": "SELECT item, sum(amount) FROM sale GROUP BY item; DELETE FROM sale",
    "a deletion": "DELETE FROM sale",
    "a deletion that returns": "DELETE FROM sale RETURNING item, amount",
    "a table of its own": "CREATE TABLE t AS SELECT 1",
    "attaching a file": "ATTACH DATABASE '/etc/passwd' AS p",
    "a pragma": "PRAGMA table_info(sale)",
    "writing the schema": "PRAGMA writable_schema = ON",
    "an extension": "SELECT load_extension('/tmp/x.so')",
    "reading a file": "SELECT readfile('/etc/passwd'), 1",
    "vacuum into a file": "VACUUM INTO '/tmp/copy.db'",
    "a transaction": "BEGIN",
    "chance": "SELECT item, abs(random()) % 10 FROM sale GROUP BY item",
    "recursion without end": f"{ENDLESS} SELECT x, x FROM n",
    "counting without end": f"{ENDLESS} SELECT 'fig', count(*) FROM n",
    "a giant value": "SELECT hex(printf('%.*c', 900000000, 'x')), 1",
    "a giant product": "SELECT 'fig', count(*) FROM " + ", ".join(f"sale s{n}" for n in range(40)),
    "deep nesting": "SELECT " + "(" * 1_500 + "1" + ")" * 1_500,
    "explain": "EXPLAIN SELECT item, sum(amount) FROM sale GROUP BY item",
    "every aggregate at once": "SELECT item, sum(amount), max(amount) FROM sale GROUP BY item",
    "the rows twice": f"{SHOP['query']} UNION ALL {SHOP['query']}",
    "a wrong type": "SELECT item, total(amount) FROM sale GROUP BY item",
    "Python instead": "__import__('os').system('true')",
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_a_cheating_query_is_incorrect(judge: Judge, query: str) -> None:
    verdict = judge.query(query)
    assert verdict.status is VerdictStatus.INCORRECT
    assert verdict.score == 0.0
    assert "xylophone" not in f"{verdict.reason}{verdict.evidence}"


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("two statements", Flag.SEVERAL_STATEMENTS),
        ("nothing", Flag.SEVERAL_STATEMENTS),
        ("a deletion", Flag.WRITES),
        ("attaching a file", Flag.WRITES),
        ("writing the schema", Flag.WRITES),
        ("an extension", Flag.WRITES),
        ("vacuum into a file", Flag.WRITES),
        ("counting without end", "cpu_limit"),
    ],
)
def test_what_a_query_tried_is_flagged(judge: Judge, name: str, flag: str) -> None:
    assert judge.query(QUERIES[name]).flags == (flag,)
