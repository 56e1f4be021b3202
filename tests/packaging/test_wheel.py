"""The wheel, not the tree: what a user installs holds everything and works."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).resolve().parents[2]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    name = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()[-1]
    return folder / name


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the installed wheel, without its dependencies."""
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", str(target), str(wheel)], check=True, capture_output=True)
    return target


def run(installed: Path, *words: str) -> str:
    """Run a command that sees the installed wheel before anything else, from a folder that is not the tree."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        words, cwd=installed, env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_wheel_holds_three_packages_their_types_and_the_licence(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    top = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert top == {"dueq", "dueq_codecs", "dueq_chaos", "pyspark_dueq", "pytest_dueq"}
    assert {"dueq/py.typed", "dueq_codecs/py.typed"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.endswith((".pyc", ".fbs", ".bin"))]


def test_the_wheel_holds_no_generated_classes_and_no_tests(wheel: Path) -> None:
    """The product reads and writes FlatBuffers by itself; `_fb/` is for tests and for writers of other clients."""
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    assert not [name for name in names if "/_fb/" in name or Path(name).name.startswith("test_")]
    (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
    assert b"Requires-Dist: flatbuffers" not in archive.read(metadata)


def test_the_wheel_holds_the_pages_of_the_dashboard(wheel: Path) -> None:
    names = {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if "/dashboard/static/" in name}
    assert {"index.html", "app.js", "style.css", "icon.svg"} <= names


@pytest.mark.parametrize("package", ["dueq", "dueq_codecs", "dueq_codecs.frames", "dueq_chaos"])
def test_each_package_is_imported_from_the_wheel(installed: Path, package: str) -> None:
    where = run(installed, sys.executable, "-c", f"import {package}; print({package}.__file__)")
    assert Path(where).is_relative_to(installed)


def test_the_public_names_are_there(installed: Path) -> None:
    run(installed, sys.executable, "-c", "from dueq import AsyncClient, Client, DueqError, __version__")


def test_the_console_script_works(installed: Path) -> None:
    said = run(installed, sys.executable, str(installed / "bin" / "dueq"), "--version")
    assert said.startswith("dueq 0.")


def test_importing_dueq_does_not_import_spark_kazoo_or_leveldb(installed: Path) -> None:
    """A producer's process pays for what it uses."""
    heavy = ("pyspark", "pyarrow", "kazoo", "plyvel", "plyvel_next")
    code = f"import sys, dueq; print([name for name in {heavy} if name in sys.modules])"
    assert run(installed, sys.executable, "-c", code) == "[]"
