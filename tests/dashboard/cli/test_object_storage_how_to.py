"""The commands of the how-to on object storage, as written, against the stand-in for S3 that they start."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ...ports import free_port

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "object-storage.md"
UNSET = ("SPANLOOP_DATA_DIR", "SPANLOOP_STORAGE_URL")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    section = HOW_TO.read_text().partition("## 2. Try it on this machine")[2]
    commands = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)[0].replace("5000", str(free_port()))
    waiting = "for _ in $(seq 100); do (: > /dev/tcp/127.0.0.1/$PORT) 2>/dev/null && break; sleep 0.2; done\n"
    first, _, rest = commands.partition("\n")
    port = re.findall(r"--port (\d+)", first)[0]
    environment = {name: value for name, value in os.environ.items() if name not in UNSET}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PORT": port, "HOME": str(tmp_path)}
    output = tmp_path / "output.txt"
    with output.open("w") as file:
        process = subprocess.Popen(
            ["bash", "-e", "-c", f"{first}\n{waiting}{rest}"],
            cwd=tmp_path,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        status = process.wait(timeout=500)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    text = output.read_text()
    assert status == 0, text
    assert "tiny@v1" in text
    assert "models/tiny/" in text
    assert "backed up to s3://bucket/backups/monday" in text
    assert "bucket/backups/monday/manifest.json" in text
    assert (tmp_path / "exported" / "config.json").exists()
    assert (tmp_path / "second" / "models" / "tiny" / "v1" / "model.safetensors").exists()
