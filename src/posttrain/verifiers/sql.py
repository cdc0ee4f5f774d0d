"""SQL queries judged by what they give: the same rows as the task's own query, on each of several data sets.

`gold` is `{"schema": "CREATE TABLE …", "data": [{"table": [[…], …]}, …], "query": …, "ordered": …, "wrong": […]}`. Both
queries run in SQLite in the sandbox, in executions of their own, where they are data to a program of ours that lets
them do nothing but read; rows are compared out here, on exact types. The names of columns do not count, their order
does; the order of rows counts where the task says so, how often a row comes does always. Data sets that cannot tell
the task's query from a constant, or from the queries in `wrong`, are an error of the task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import Field

from posttrain.core.errors import SandboxError
from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import CallResult, OutputStatus, ResultClass, SandboxLimits
from posttrain.core.types import Json, Verdict
from posttrain.verifiers.execution_cache import ExecutionCache
from posttrain.verifiers.fenced import read_fenced
from posttrain.verifiers.final_answer import Refused
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.gold import gold_reader, gold_record
from posttrain.verifiers.python_code import sandbox_failure

MAX_QUERY_CHARACTERS = 5_000
MAX_ANSWER_CHARACTERS = 500

Cell = int | float | str | None
Rows = tuple[tuple[Cell, ...], ...]

_PROGRAM = r"""
import sqlite3

MAX_ROWS = 10_000
ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
REFUSED = {"load_extension", "random", "randomblob", "readfile", "writefile", "fts3_tokenizer", "zeroblob"}


class Writes(Exception):
    pass


class NotOneQuery(Exception):
    pass


def cell(value):
    if isinstance(value, bytes):
        return ("blob", value.hex())
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return ("real", repr(value))
    return value


def run(schema, data, query):
    database = sqlite3.connect(":memory:")
    database.executescript(schema)
    for table, rows in data.items():
        for row in rows:
            database.execute(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(row))})', row)
    database.commit()
    denied = []

    def authorize(action, first, second, *rest):
        if action in ALLOWED:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and second.lower() not in REFUSED:
            return sqlite3.SQLITE_OK
        denied.append(action)
        return sqlite3.SQLITE_DENY

    database.execute("PRAGMA query_only = ON")
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
    database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    database.set_authorizer(authorize)
    try:
        cursor = database.execute(query)
    except (sqlite3.Warning, sqlite3.ProgrammingError) as error:
        raise NotOneQuery(str(error)) from None
    except sqlite3.DatabaseError:
        if denied:
            raise Writes("the query would do more than read") from None
        raise
    if cursor.description is None:
        raise NotOneQuery("the query gives no columns")
    rows = cursor.fetchmany(MAX_ROWS + 1)
    if len(rows) > MAX_ROWS:
        raise NotOneQuery(f"the query gives more than {MAX_ROWS} rows")
    return [len(cursor.description), [[cell(value) for value in row] for row in rows]]
"""


@gold_record
class SqlGold:
    """`Sql`'s gold."""

    schema: Annotated[str, Field(min_length=1)]
    """Statements that make the tables."""
    data: Annotated[tuple[dict[str, Rows], ...], Field(min_length=2)]
    """Rows by table, for each data set; one alone could not tell a query from its result."""
    query: Annotated[str, Field(min_length=1)]
    """One that is right."""
    ordered: bool = False
    wrong: tuple[str, ...] = ()
    """Queries that are near and not right: each must differ on some data set."""

    def __post_init__(self) -> None:
        if any('"' in table for tables in self.data for table in tables):
            raise ValueError("a table's name must not hold a quotation mark")

    def inputs(self, query: str) -> list[list[Json]]:
        return [[self.schema, {name: [*map(list, rows)] for name, rows in data.items()}, query] for data in self.data]


_read = gold_reader(SqlGold, "a query's task")


@dataclass(frozen=True)
class Sql:
    """The query gives what the task's own query gives, on every data set."""

    limits: SandboxLimits = field(default_factory=lambda: SandboxLimits(cpu_s=2.0, processes=4, disk_mib=1))
    """Of one query on all data sets."""
    cache: ExecutionCache = field(default_factory=ExecutionCache, init=False, repr=False, compare=False)

    version: ClassVar[str] = "1"

    async def verify(self, reply: str, gold: Json, sandbox: Sandbox) -> Verdict:
        wanted: SqlGold = _read(gold)
        query = read_fenced(reply, ("sql", "sqlite", ""), "query")
        if isinstance(query, Refused):
            return query.verdict()
        if len(query) > MAX_QUERY_CHARACTERS:
            reason = f"the query has {len(query)} of at most {MAX_QUERY_CHARACTERS} characters"
            return Verdict.incorrect(reason, flags=(Flag.TOO_LONG,))
        try:
            right = await self._right_results(wanted, sandbox)
            result = right if isinstance(right, str) else await self._run(wanted, query, sandbox)
        except SandboxError as error:
            return Verdict.none(f"the sandbox failed: {error}", isolation_tier=str(sandbox.tier))
        if isinstance(result, str) or isinstance(right, str):
            return Verdict.none(f"the task's own query could not be run: {right}", isolation_tier=str(sandbox.tier))
        return judge(wanted, right, result, query[:MAX_ANSWER_CHARACTERS])

    async def _run(self, wanted: SqlGold, query: str, sandbox: Sandbox) -> CallResult:
        return await self.cache.call(sandbox, _PROGRAM, "run", wanted.inputs(query), self.limits)

    async def _right_results(self, wanted: SqlGold, sandbox: Sandbox) -> list[Json] | str:
        """What the task's own query gives, or why the sandbox did not say. Raises ValueError for a broken task."""
        results: list[list[Json]] = []
        for query in (wanted.query, *wanted.wrong):
            result = await self._run(wanted, query, sandbox)
            if failure := sandbox_failure(result, len(wanted.data)):
                return failure
            if result.run.result_class is ResultClass.TIME_LIMIT:  # which a busy machine can cause
                return result.run.reason or "its time was up"
            if any(output.status is not OutputStatus.VALUE for output in result.outputs):
                errors = [output.error for output in result.outputs if output.error]
                raise ValueError(f"a query of the task itself fails: {query[:100]!r}: {[*errors, '?'][0]}")
            results.append([output.value for output in result.outputs])
        right, *wrong = results
        if all(_form(value, wanted.ordered) == _form(right[0], wanted.ordered) for value in right[1:]):
            raise ValueError("the task's query gives the same on every data set, as a constant would")
        for query, values in zip(wanted.wrong, wrong, strict=True):
            if all(map(_same(wanted.ordered), right, values)):
                raise ValueError(f"no data set tells this wrong query from the right one: {query[:100]!r}")
        return right


def judge(wanted: SqlGold, right: Sequence[Json], result: CallResult, answer: str) -> Verdict:
    """A verdict from one execution of the reply's query on all data sets."""
    run = result.run
    shown: dict[str, Any] = {"answer": answer, "isolation_tier": str(run.tier), "wall_s": run.wall_s}
    if failure := sandbox_failure(result, len(right)):
        return Verdict.none(f"the sandbox failed: {failure}", **shown)
    agree = _same(wanted.ordered)
    passed = [
        output.status is OutputStatus.VALUE and agree(value, output.value)
        for value, output in zip(right, result.outputs, strict=True)
    ]
    shown |= {
        "parts": {"tests_passed": sum(passed) / len(passed)},
        "evidence": {"result_class": str(run.result_class), "passed": sum(passed), "tests": len(passed)},
        "flags": _flags(result),
    }
    if run.result_class is not ResultClass.OK:
        return Verdict.incorrect(f"the query failed: {run.reason or run.result_class}", **shown)
    if not all(passed):
        # The kind of error alone: its text can quote the data.
        kinds = sorted({output.error.partition(":")[0] for output in result.outputs if output.error})
        failed = f"; it failed ({', '.join(kinds)})" if kinds else ""
        return Verdict.incorrect(f"{sum(passed)} of {len(passed)} data sets gave the same rows{failed}", **shown)
    return Verdict.correct(**shown)


def _flags(result: CallResult) -> tuple[str, ...]:
    if result.run.result_class is not ResultClass.OK:
        return (str(result.run.result_class),)
    kinds = {output.error.partition(":")[0] for output in result.outputs}
    flags = [Flag.WRITES] if "Writes" in kinds else []
    return tuple(flags + ([Flag.SEVERAL_STATEMENTS] if "NotOneQuery" in kinds else []))


def _same(ordered: bool) -> Any:
    return lambda expected, value: _form(expected, ordered) == _form(value, ordered)


def _form(value: Json, ordered: bool) -> Any:
    """One form for all results that count as the same: each cell with its type, since 1 == 1.0 here and not there."""
    columns, rows = value
    typed = [tuple((type(cell).__name__, cell) for cell in row) for row in rows]
    return columns, typed if ordered else Counter(typed)
