"""A progress bar on the terminal for what takes over a few seconds; silent elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def track(items: Iterable[T], total: int, description: str, long: bool = True) -> Iterator[T]:
    """Pass the items on, with a bar if the work is `long`, rich is installed and stderr is a terminal."""
    try:
        from rich.console import Console
        from rich.progress import track as rich_track
    except ImportError:
        yield from items
        return
    console = Console(stderr=True)
    if not long or not console.is_terminal:
        yield from items
        return
    yield from rich_track(items, description=description, total=total, console=console, transient=True)
