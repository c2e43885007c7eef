"""The office agent with tools that fail: a fifth of the calls raise as an unavailable service does.

Run in the folder of the agent, with its arguments.
"""

import random
import sys
from pathlib import Path
from unittest.mock import patch

FAULTS = 0.2
"""Share of the tool calls that fail."""


def main() -> None:
    """Run the agent."""
    sys.path.insert(0, str(Path.cwd()))
    import agent  # noqa: PLC0415 - in the folder of the agent
    from tools import Office  # noqa: PLC0415

    stock = Office.call

    def call(office: Office, name: str, arguments: str) -> str:
        if random.random() < FAULTS:
            raise ConnectionError("503 Service Unavailable: the tool's server cannot be reached")
        return stock(office, name, arguments)

    with patch.object(Office, "call", call):
        agent.main()


if __name__ == "__main__":
    main()
