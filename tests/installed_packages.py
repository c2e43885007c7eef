"""Install a package's folder into a folder of its own, as ``pip`` does."""

import subprocess
import sys
import zipfile
from pathlib import Path


def install(package: Path, target: Path) -> None:
    """Build the wheel of ``package`` and unpack it into ``target``, which is on no path yet."""
    wheels = target.with_name(f"{target.name}-wheels")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(build, cwd=package, check=True, capture_output=True)
    (wheel,) = wheels.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(target)
