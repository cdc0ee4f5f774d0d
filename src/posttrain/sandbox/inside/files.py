"""The file verbs of a session, done inside by our own code with the program's rights, so no link leads anywhere else.

Paths are looked up below the work tree by the kernel itself (openat2, RESOLVE_BENEATH): a link that points out of it
is refused. Answers are records: a line of JSON with the `size` of the bytes that follow it. The base of the tree is
layer 0; this process stands in the folder of the layers, which no program ever does.
"""

# These are thin over system calls on descriptors:
# ruff: noqa: PTH113, PTH114, PTH118, PTH123

import ctypes
import os
import struct
from _json import encode_basestring_ascii

from posttrain.sandbox.inside.kernel import check, libc
from posttrain.sandbox.inside.program import WORK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_SYS_OPENAT2 = 437
_RESOLVE_BENEATH, _RESOLVE_NO_MAGIC_LINKS = 0x08, 0x02
_BASE = "0"
_PIECE = 1 << 20


class _Refusal(Exception):
    """The message is a sentence for the caller."""


def perform(verb: "list[Any]", answer: int) -> None:
    """Does not return: exit status 0 also for what was refused, which the answer says."""
    name, *arguments = verb
    try:
        _VERBS[name](answer, *arguments)  # type: ignore[operator]
    except _Refusal as refusal:
        _record(answer, {"refused": str(refusal)})
    except OSError as error:
        _record(answer, {"refused": f"{arguments[0] if arguments else name}: {error.strerror}"})
    except RecursionError:
        _record(answer, {"refused": "the work tree is too deep"})
    os._exit(0)


def _read(answer: int, path: str) -> None:
    with open(_open(path, os.O_RDONLY), "rb") as file:
        _record(answer, {}, file.read())


def _write(answer: int, path: str, content: bytes) -> None:
    _put(os.open(WORK, os.O_PATH), path, content)
    _record(answer, {})


def _remove(answer: int, path: str) -> None:
    folder, _, name = path.rpartition("/")
    os.remove(name, dir_fd=_open(folder or ".", os.O_PATH | os.O_DIRECTORY))
    _record(answer, {})


def _edit(answer: int, path: str, old: str, new: str) -> None:
    with open(_open(path, os.O_RDONLY), "rb") as file:
        content = file.read()
    found = content.count(old.encode())
    if found != 1:
        raise _Refusal(f"{path}: the text to replace is there {found} times, and must be there once")
    with open(_open(path, os.O_WRONLY | os.O_TRUNC), "wb") as file:
        file.write(content.replace(old.encode(), new.encode()))
    _record(answer, {})


def _list(answer: int, path: str) -> None:
    folder = _open(path, os.O_RDONLY | os.O_DIRECTORY)
    with os.scandir(folder) as entries:
        names = [entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in entries]
    _record(answer, {}, "\0".join(sorted(names)).encode(errors="surrogateescape"))


def _lay(answer: int, layer: int, files: "dict[str, bytes]") -> None:
    root = os.open(str(layer), os.O_PATH)
    for path, content in files.items():
        _put(root, path, content)
    _record(answer, {})


def _diff(answer: int) -> None:
    """Regular files of the work tree that the base has not or has otherwise, and files that only the base has."""
    for path in _regular_files(WORK):
        content = _content(os.path.join(WORK, path))
        before = os.path.join(_BASE, path)
        if os.path.islink(before) or not os.path.isfile(before) or _content(before) != content:
            _record(answer, {"path": path}, content)
    for path in _regular_files(_BASE):
        after = os.path.join(WORK, path)
        if os.path.islink(after) or not os.path.isfile(after):
            _record(answer, {"path": path, "deleted": True})


def _hash(answer: int) -> None:
    """Of the paths and contents of the regular files."""
    import hashlib  # here, because it brings libraries that every child of the server would have to carry

    total = hashlib.sha256()
    for path in _regular_files(WORK):
        content = _content(os.path.join(WORK, path))
        total.update(b"%d %s %d " % (len(path), path.encode(errors="surrogateescape"), len(content)) + content)
    _record(answer, {"hash": total.hexdigest()})


def _drop(answer: int, layers: "list[int]") -> None:
    """`rm` copes with trees of any depth."""
    os.execvp("rm", ["rm", "-rf", "--", *(name for layer in layers for name in (str(layer), f"w{layer}"))])


_VERBS = {
    "read": _read,
    "write": _write,
    "remove": _remove,
    "edit": _edit,
    "list": _list,
    "lay": _lay,
    "diff": _diff,
    "hash": _hash,
    "drop": _drop,
}


def _put(root: int, path: str, content: bytes) -> None:
    """Folders on the way are made."""
    parts = path.split("/")
    folder = root
    for depth in range(1, len(parts)):
        try:
            inner = _open("/".join(parts[:depth]), os.O_PATH | os.O_DIRECTORY, root)
        except FileNotFoundError:
            os.mkdir(parts[depth - 1], dir_fd=folder)
            inner = _open("/".join(parts[:depth]), os.O_PATH | os.O_DIRECTORY, root)
        if folder != root:
            os.close(folder)
        folder = inner
    if folder != root:
        os.close(folder)
    with open(_open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, root), "wb") as file:
        file.write(content)


def _open(path: str, flags: int, root: "int | None" = None) -> int:
    """Below `root`, by default the work tree."""
    top = os.open(WORK, os.O_PATH) if root is None else root
    mode = 0o644 if flags & os.O_CREAT else 0
    how = struct.pack("@QQQ", flags | os.O_CLOEXEC, mode, _RESOLVE_BENEATH | _RESOLVE_NO_MAGIC_LINKS)
    try:
        return check(libc.syscall(_SYS_OPENAT2, top, ctypes.c_char_p(path.encode()), how, len(how)))
    except OSError as error:
        if error.errno == 18:  # EXDEV
            raise _Refusal(f"{path} leads out of the work tree") from None
        raise
    finally:
        if root is None:
            os.close(top)


def _regular_files(top: str) -> "Iterator[str]":
    """Sorted paths below `top`; links are neither followed nor named. Raises `OSError` for a folder that is too deep
    or closed to us."""

    def fail(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(top, onerror=fail):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield os.path.relpath(path, top)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _record(answer: int, head: "dict[str, str | bool]", body: bytes = b"") -> None:
    fields = [f'"size":{len(body)}']
    for name, value in head.items():
        text = "true" if value is True else encode_basestring_ascii(str(value).encode(errors="replace").decode())
        fields.append(f'"{name}":{text}')
    data = memoryview(("{" + ",".join(fields) + "}\n").encode() + body)
    while data:
        data = data[os.write(answer, data[:_PIECE]) :]
