"""Progress bars for what takes more than a moment."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")


def track(items: Iterable[T], description: str, *, long: bool = True) -> Iterator[T]:
    """The items, with a bar while they are worked through, if the work is `long`.

    Silent where no person looks or rich is not installed.
    """
    if long and sys.stderr.isatty():
        try:
            from rich.console import Console
            from rich.progress import track as bar
        except ImportError:
            yield from items
            return
        total = len(items) if isinstance(items, Sized) else None
        yield from bar(items, description, total=total, console=Console(stderr=True), transient=True)
    else:
        yield from items
