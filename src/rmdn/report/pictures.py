"""Figures as addresses that hold the picture itself, so that a page needs no file beside it."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any, NamedTuple

from rmdn.report.style import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST_SVG = 400_000  # bytes; clouds of points beyond that are smaller and faster as PNG
DPI = 160  # of a PNG: sharp on dense screens
PIXELS_PER_INCH = 96  # of CSS


class Image(NamedTuple):
    """The address of a picture, and its size on the page where it is known."""

    address: str
    width: int | None
    height: int | None


def image(figure: Figure | bytes) -> Image:
    """SVG from a figure where that is small, else PNG; the same figure gives the same bytes."""
    if isinstance(figure, bytes):
        return Image(_address("png", figure), None, None)
    width, height = (round(inches * PIXELS_PER_INCH) for inches in figure.get_size_inches())
    svg = _saved(figure, "svg", metadata={"Date": None})
    if len(svg) <= LARGEST_SVG:
        return Image(_address("svg+xml", svg), width, height)
    return Image(_address("png", _saved(figure, "png", dpi=DPI)), width, height)


def _saved(figure: Figure, format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    with drawing():
        figure.savefig(file, format=format, **options)
    return file.getvalue()


def _address(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
