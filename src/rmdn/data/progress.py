"""A progress bar for work over many files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rmdn.extras import need

T = TypeVar("T")


def track(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    """Pass items on, and show on a terminal how many of `total` are done (on standard error)."""
    console = need("rich.console", "study").Console(stderr=True)
    progress = need("rich.progress", "study")
    yield from progress.track(items, what, total=total, console=console, disable=not console.is_terminal)
