"""The agent of ``benchmarks/task_runner.py``: a question, a tool call and an answer, with the OpenAI SDK."""

import json
import os
import sys

from openai import OpenAI


def main() -> None:
    """Attempt the task of the command line, and print the answer."""
    client = OpenAI()
    messages: list[dict[str, str]] = [{"role": "user", "content": sys.argv[1]}]
    for _ in range(2):
        completion = client.chat.completions.create(model=os.environ["OPENAI_MODEL"], messages=messages)  # type: ignore[arg-type]
        messages += [
            {"role": "assistant", "content": completion.choices[0].message.content or ""},
            {"role": "user", "content": "go on"},
        ]
    print(json.dumps({"answer": messages[-2]["content"]}))


if __name__ == "__main__":
    main()
