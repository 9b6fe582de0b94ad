"""The pages: links lead somewhere, files that are named exist, commands can be called."""

import ast
import re
import shlex
from pathlib import Path

import pytest
import typer

from rmdn.commands import app

ROOT = Path(__file__).parents[1]
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *sorted(ROOT.glob("docs/**/*.md"))]
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def anchors(page):
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@EACH_PAGE
def test_every_link_leads_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if re.match(r"https?://|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{link} does not exist"
        assert not anchor or anchor in anchors(target), f"{link} has no such heading"


@EACH_PAGE
def test_every_file_that_is_named_exists(page):
    folders = "src|tests|docs|examples|benchmarks|strategies|layers|data|experiments|commands|models"
    for path in re.findall(rf"`((?:{folders})/[\w/.\-]+)`", page.read_text("utf-8")):
        assert any((folder / path).exists() for folder in (ROOT, ROOT / "src" / "rmdn")), f"{path} does not exist"


def shell_lines():
    lines = [line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    return [line for line in lines if re.match(r"(\.venv/bin/)?rmdn |make ", line)]


@pytest.mark.parametrize("line", shell_lines())
def test_every_command_that_is_shown_can_be_called(line):
    program, *words = shlex.split(line, comments=True)
    if program == "make":
        assert f"\n{words[0]}: install" in (ROOT / "Makefile").read_text("utf-8")
        return
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="rmdn")
    while hasattr(command, "commands"):
        assert words[0] in command.commands
        command, words = command.commands[words[0]], words[1:]
    command.parse_args(context, [word for word in words if word != "..."])  # raises where an option is unknown


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    for page in ROOT.glob("docs/*.md"):
        assert page.name == "README.md" or f"]({page.name})" in index


SOURCE = ROOT / "src" / "rmdn"


def layers():
    """How far down the list of `docs/layout.md` each file and folder of the source stands."""
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs" / "layout.md").read_text("utf-8"), re.MULTILINE)
    return {name.rstrip("/"): depth for depth, row in enumerate(rows) for name in re.findall(r"`([\w./]+)`", row)}


def test_every_file_of_the_source_has_its_place_in_the_layout():
    there = {path.name for path in SOURCE.iterdir() if (path.suffix == ".py" or path.is_dir()) and path.name[:2] != "__"}
    assert set(layers()) == there


def imports(file):
    """The files and folders of the source that a file imports from."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rmdn"):
            names = [f"rmdn.{alias.name}" for alias in node.names] if node.module == "rmdn" else [node.module]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name.split(".")[1] for name in names if name.startswith("rmdn."))


def test_imports_go_downwards_only():
    depth = {name.removesuffix(".py"): depth for name, depth in layers().items()}
    for file in SOURCE.rglob("*.py"):
        own = file.relative_to(SOURCE).parts[0].removesuffix(".py")
        for name in imports(file):
            assert depth.get(name, depth.get(own, 0)) >= depth.get(own, 0), f"{file} imports {name}, which stands above it"


@pytest.mark.parametrize("code", blocks(ROOT / "docs" / "reproduce.md", "python"))
def test_the_python_of_reproducing_runs(code, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(code, "reproduce.md", "exec"), names)
    assert list(names["table"]) == []
