"""A scripted expert with OpenAI's chat API: it knows the office's training tasks and calls the right tool first.

Its calls are recorded as those of any other vendor's model: messages, no token ids, no log-probabilities.
"""

import json
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

NAME = "scripted-expert"
"""Of the model."""
_OPERATIONS = {
    "+": ("add", "plus", "sum", "+"),
    "-": ("minus", " - "),
    "*": ("multiply", "times", "product", "*"),
}
_ANSWERS = {
    "price": "It costs {} dollars.",
    "calculator": "The result is {}.",
    "time": "It is {}.",
    "search": "It is {}.",
}


class Known(NamedTuple):
    """A task as the expert knows it."""

    tool: str
    argument: str
    answer: str


def learn(tasks: Path, names: list[str]) -> dict[str, Known]:
    """Return what the expert knows, by question.

    Args:
        tasks: The agent's task file.
        names: Every item, event and company that a question can be about.
    """
    known: dict[str, Known] = {}
    for task in json.loads(tasks.read_text()):
        question = task["question"]
        is_sum = task["kind"] == "calculator"
        argument = _expression(question) if is_sum else max((name for name in names if name in question), key=len)
        known[question] = Known(task["kind"], argument, _ANSWERS[task["kind"]].format(task["answer"]))
    return known


def _expression(question: str) -> str:
    first, second = re.findall(r"\d+", question)
    sign = next(sign for sign, words in _OPERATIONS.items() if any(word in question.lower() for word in words))
    return f"{first} {sign} {second}"


@contextmanager
def serving_expert(known: dict[str, Known]) -> Generator[str]:
    """Serve the expert on a free port; yield its base URL."""
    numbers = count(1)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            content = json.dumps(_completion(body["messages"], known, next(numbers))).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _completion(messages: list[dict[str, Any]], known: dict[str, Known], number: int) -> dict[str, Any]:
    question = next(each["content"] for each in reversed(messages) if each["role"] == "user")
    task = known[question.removeprefix("Question: ")]
    message: dict[str, Any] = {"role": "assistant", "content": task.answer}
    if messages[-1]["role"] != "tool":
        function = {"name": task.tool, "arguments": json.dumps({"input": task.argument})}
        calls = [{"id": f"call_{uuid4().hex[:24]}", "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": f"chatcmpl-expert-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": NAME,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
