"""The contents of the wheel and of the sdist."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/src/spanloop/*/__init__.py"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel built from it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return folder


@pytest.fixture(scope="module")
def wheel_names(built: Path) -> list[str]:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_installs_nothing_at_top_level_but_spanloop(wheel_names: list[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"spanloop"}


def test_is_a_namespace_package(wheel_names: list[str]) -> None:
    assert "spanloop/__init__.py" not in wheel_names


@pytest.mark.parametrize("package", PACKAGES)
def test_has_every_package_with_its_types(wheel_names: list[str], package: str) -> None:
    assert f"spanloop/{package}/__init__.py" in wheel_names
    assert f"spanloop/{package}/py.typed" in wheel_names


def test_has_the_demo_and_its_agent(wheel_names: list[str]) -> None:
    assert {"spanloop/demo/shop_agent.py", "spanloop/demo/office_agent/agent.py"} <= set(wheel_names)


def test_has_the_files_that_are_not_python(wheel_names: list[str]) -> None:
    for suffix in (".sql", ".jinja"):
        packaged = {name for name in wheel_names if name.endswith(suffix)}
        sources = list(ROOT.glob("*/src"))
        assert packaged == {str(path.relative_to(src)) for src in sources for path in src.rglob(f"*{suffix}")}
        assert packaged


def test_sdist_has_the_licence_and_no_tests(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames() if "/" in name]
    assert "LICENSE" in names
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)


def test_core_install_is_light(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    core = [line for line in lines if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert core
    assert all(line.startswith(("Requires-Dist: opentelemetry-", "Requires-Dist: wrapt")) for line in core), core
