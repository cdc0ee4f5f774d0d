"""A local OpenAI-compatible server that answers as it is told to: the tests' judge."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[str], Any]
"""From the reply as the judge sees it to the answer: an int is a status, bytes a body, a text the message's content,
anything else is written as JSON into the content."""


@dataclass
class JudgeServer:
    """What it was asked, in order, and where it is."""

    answer: Answer
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    url: str = ""

    @property
    def replies(self) -> list[str]:
        return [shown_reply(request) for request in self.requests]


def shown_reply(request: dict[str, Any]) -> str:
    """The candidate's text in a request, without its marks."""
    marked: str = json.loads(request["messages"][1]["content"])["reply"]
    return marked.partition(">")[2].rpartition("</")[0]


def verdict(correct: bool, reason: str = "because") -> dict[str, str]:
    return {"reason": reason, "verdict": "correct" if correct else "incorrect"}


@contextmanager
def serving(answer: Answer) -> Iterator[JudgeServer]:
    told = JudgeServer(answer)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                told.requests.append(request)
                told.keys.append(self.headers.get("Authorization"))
                said = told.answer(shown_reply(request))
            status, body = _response(said)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    told.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _response(said: Any) -> tuple[int, bytes]:
    if isinstance(said, int):
        return said, b"{}"
    if isinstance(said, bytes):
        return 200, said
    content = said if isinstance(said, str) else json.dumps(said)
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    return 200, json.dumps({"id": "1", "object": "chat.completion", "created": 1, "choices": [choice]}).encode()
