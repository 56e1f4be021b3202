"""The examples of the pages work, their links lead somewhere, and the manual can be built."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueq import Client
from dueq.local import LocalMesh
from tests.docs.pages import ROOT, blocks, files, links

BY_HAND = sorted(
    path.relative_to(ROOT)
    for folder in ("tutorial", "how-to")
    for path in (ROOT / "docs" / folder).glob("*.md")
)
THREE_BROKERS = {Path("docs/tutorial/first-mesh.md")}
WITH_SPARK = {Path("docs/tutorial/spark.md")}
SHOWN = [
    pytest.param(page, marks=[pytest.mark.spark] if page in WITH_SPARK else [], id=page.stem)
    for page in BY_HAND
    if any(not block.why_not for block in blocks(ROOT / page))
]
SHOWN.append(pytest.param(Path("README.md"), id="README"))
PAPERS = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "chaos/*.md")
    for path in ROOT.glob(pattern)
)
ROOTS = (Path(), Path("mesh/dueq"), Path("codecs"), Path("chaos"), Path("chaos/dueq_chaos"), Path("tests"))
"""From where pages name files."""
DOCUMENTED = "tcp://127.0.0.1:7400"
"""The broker of the pages; the tests put one in its place that has the machine's ports to itself."""
GATEWAY = "http://127.0.0.1:7480"
"""The gateway of the pages; likewise."""
WITH_GATEWAY = {Path("docs/how-to/http.md")}
SHORTER = {"sim --seeds 5": "sim --seeds 1"}
"""What is done fewer times here than a page says."""


@pytest.fixture(scope="module")
def one_broker() -> Iterator[LocalMesh]:
    """The mesh of most pages."""
    with LocalMesh(brokers=1, zookeeper=False) as found:
        yield found


@pytest.fixture
def mesh(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalMesh]:
    """A mesh as the page tells its reader to start, without any topics."""
    three = page in THREE_BROKERS
    gateway = page in WITH_GATEWAY
    if gateway:
        pytest.importorskip("fastapi")
    if three or gateway:
        folder = tmp_path / "mesh-data"  # a page reads what is in it
        with LocalMesh(folder, brokers=3 if three else 1, zookeeper=three, gateway=gateway) as found:
            yield found
    else:
        found = request.getfixturevalue("one_broker")
        yield found
        with Client(found.endpoints) as client:
            for topic in client.topics():
                client.delete_topic(topic.name)


def command_of(language: str, text: str, folder: Path) -> list[str] | None:
    """Return how a block is run; None: what runs it is not installed."""
    if language == "sh":
        if "curl " in text and shutil.which("curl") is None:
            return None
        return ["bash", "-euo", "pipefail", "-c", text]
    if language == "python":
        return [sys.executable, "-c", text]
    tool = shutil.which({"javascript": "node", "go": "go"}[language])
    if tool is None:
        return None
    if language == "javascript":
        return [tool, "--input-type=module", "-e", text]
    (folder / "main.go").write_text(text, encoding="utf-8")
    return [tool, "run", "main.go"]


@pytest.mark.integration
@pytest.mark.parametrize("page", SHOWN)
def test_what_a_page_shows_works(page: Path, mesh: LocalMesh, tmp_path: Path) -> None:
    """A page's blocks are run from top to bottom in one folder, those with a reason not to be left out."""
    if page in WITH_SPARK:
        pytest.importorskip("pyspark")
    environment = os.environ | {
        "DUEQ_ENDPOINTS": ",".join(mesh.endpoints),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
    }
    for block in blocks(ROOT / page):
        if block.why_not:
            continue
        text = block.text.replace(DOCUMENTED, mesh.endpoints[0])
        for long, short in SHORTER.items():
            text = text.replace(long, short)
        if mesh.gateway is not None:
            text = text.replace(GATEWAY, mesh.gateway.url)
        command = command_of(block.language, text, tmp_path)
        if command is None:
            continue
        result = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        said = f"{page}:{block.line}\n{result.stdout[-2000:]}\n{result.stderr[-4000:]}"
        assert result.returncode == 0, said


@pytest.mark.parametrize("page", PAPERS, ids=str)
def test_links_lead_to_something(page: Path) -> None:
    """mkdocs looks at the links of docs/ only; these are all that the repository has."""
    missing = [target for target in links(ROOT / page) if not (ROOT / page.parent / target).exists()]
    assert not missing, f"{page} links to what is not there: {missing}"


@pytest.mark.parametrize("page", PAPERS, ids=str)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    """A reader who looks for what a page speaks of finds it, also after modules have moved."""
    roots = (page.parent, *ROOTS)
    missing = [
        name for name in files(ROOT / page) if not any((ROOT / root / name).exists() for root in roots)
    ]
    assert not missing, f"{page} names files that there are not: {missing}"


def test_every_page_is_in_the_manual() -> None:
    """A page that the navigation does not name is found by nobody."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [str(path.relative_to("docs")) for path in PAPERS if path.parts[0] == "docs"]
    assert not [page for page in pages if f"- {page}\n" not in navigation]


def test_the_readme_names_the_commands_that_one_begins_with() -> None:
    """Somebody who has just cloned the repository finds how to see it run, and how to test it."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(command in readme for command in ("scripts/quickstart", "scripts/test"))
