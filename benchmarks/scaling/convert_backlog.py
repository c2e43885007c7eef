"""One pipeline that converts everything which waits: it prints its process is ready, and begins at a line of input.

    python benchmarks/scaling/convert_backlog.py DATA_DIR BATCH_SPANS

The last line is the report as JSON.
"""

import json
import sys
from contextlib import ExitStack

from spanloop.foundation.paths import DataDir
from spanloop.pipeline import run
from spanloop.pipeline.sharing import Sharing
from spanloop.store import connect


def main() -> None:
    """Convert."""
    directory = DataDir(sys.argv[1])
    with ExitStack() as stack:
        store = stack.enter_context(connect(directory))
        sharing = stack.enter_context(Sharing.joined(directory))
        print("ready", flush=True)
        sys.stdin.readline()
        report = run(store, batch_spans=int(sys.argv[2]), sharing=sharing)
        counts = (report.spans, report.episodes, report.transitions, report.trajectories)
        print(json.dumps({"counts": counts, "rejected": dict(report.rejected)}), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
