"""A short app: two model calls. Prints when its first and its last statement ran, by the monotonic clock.

python -m instrumenting.short_run
"""

import time

from instrumenting import model


def main() -> None:
    """Tell the time, call the model, tell the time."""
    started_s = time.monotonic()
    client, histories = model.client(), model.histories()
    for _ in range(2):
        client.chat.completions.create(model=model.NAME, messages=next(histories), tools=model.TOOLS)
    print(started_s, time.monotonic(), flush=True)


if __name__ == "__main__":
    main()
