"""A report as one HTML file that loads nothing: pictures, styles and all are inside."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import Any

from rmdn.extras import need
from rmdn.files import write_atomically
from rmdn.report import numbers
from rmdn.report.parts import MARKS, Cell, Picture, Report, Table
from rmdn.report.pictures import image


def write(report: Report, path: str | os.PathLike[str]) -> Path:
    """Write the page, whole or not at all, and return where it is."""
    path = Path(path)
    page = render(report).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(page))
    return path


def render(report: Report) -> str:
    """The page as text."""
    return str(_templates().get_template("report.html.j2").render(report=report))


def _templates() -> Any:
    jinja2 = need("jinja2", "study")
    folder = resources.files(__package__)
    templates = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals.update(image=image, marks=MARKS)
    templates.filters.update(
        ours=numbers.ours,
        published=numbers.published,
        difference=numbers.difference,
        paragraphs=lambda text: [paragraph for paragraph in text.split("\n\n") if paragraph.strip()],
    )
    templates.tests.update(
        cell=lambda entry: isinstance(entry, Cell),
        table=lambda part: isinstance(part, Table),
        picture=lambda part: isinstance(part, Picture),
        compared=lambda table: any(cell.published is not None for cell in table.cells()),
    )
    return templates
