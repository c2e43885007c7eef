"""Make the serving environment of an image: ``python serving_environment.py FOLDER cpu|cuda``.

It is the environment of ``spanloop doctor --fix``. On a CPU its packages have the versions of
``requirements-serving-cpu.txt``, which lies beside this file.
"""

import os
import sys
from pathlib import Path

from spanloop.runtime.environment_checks import CPU_REQUIREMENT, GPU_REQUIREMENT, create_serving_environment


def main(folder: str, device: str) -> None:
    """Install vLLM for ``device`` into ``folder``."""
    required = {"cpu": CPU_REQUIREMENT, "cuda": GPU_REQUIREMENT}[device]
    if device == "cpu":
        os.environ["PIP_CONSTRAINT"] = str(Path(__file__).with_name("requirements-serving-cpu.txt"))
    create_serving_environment(Path(folder), lambda _, line: print(line, flush=True), required=required)


if __name__ == "__main__":
    main(*sys.argv[1:])
