"""The same tables and verdicts in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rmdn.extras import need
from rmdn.report import numbers
from rmdn.report.parts import MARKS, Cell, Claim, Report, Section, Table, Verdict

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

COLOURS: dict[Verdict, str] = {"holds": "green", "does not hold": "red", "cannot tell": "yellow"}
GAP = 3  # between two columns
WIDEST = 32  # characters of a column; longer words go on in the next line


def terminal(report: Report, console: Console | None = None) -> None:
    """Print tables, the published numbers dim below ours, and verdicts; pictures are named by their captions."""
    need("rich", "study")
    from rich.console import Console
    from rich.text import Text

    console = console or Console()
    console.print(Text(report.title, style="bold underline"))
    console.print(Text(report.summary))
    for name, fact in report.facts.items():
        console.print(Text.assemble((f"{name}: ", "dim"), fact))
    for section in report.sections:
        _section(section, console)


def _section(section: Section, console: Console) -> None:
    from rich.text import Text

    console.print(Text(f"\n{section.title}", style="bold"))
    for warning in (*section.warnings, section.missing()):
        if warning:
            console.print(Text(f"! {warning}", style="yellow"))
    if section.text:
        console.print(Text(section.text))
    for part in section.parts:
        if isinstance(part, Table):
            _table(part, console)
        else:
            console.print(Text(f"Picture, in the page: {part.caption}", style="italic"))
    for claim in section.claims:
        console.print(_claim(claim))
    if section.command:
        console.print(Text(f"$ {section.command}", style="dim"))


def _table(table: Table, console: Console) -> None:
    """Print the table; one that is too wide comes in blocks of columns, for a number cut in two is no number."""
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    groups = ["", *(f"{group}\n" for group, span in table.column_groups for _ in range(span))]
    heads = [Text(group + name) for group, name in zip_longest(groups, table.columns, fillvalue="")]
    rows = [[_entry(entry) for entry in row] for row in table.rows]
    widths = [_width(head, column) for head, *column in zip(heads, *rows, strict=True)]
    console.print(Text(table.caption, style="italic"))
    for block in _blocks(widths, console.width):
        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for i in block:
            grid.add_column(heads[i], justify="left" if table.wordy(i) else "right", max_width=widths[i])
        for row in rows:
            grid.add_row(*(row[i] for i in block))
        console.print(grid)
        console.print()
    for note in table.notes:
        console.print(Text(note, style="dim"))


def _entry(entry: str | Cell) -> Text:
    """Ours, and below it what was published."""
    from rich.text import Text

    if not isinstance(entry, Cell):
        return Text(entry)
    ours, published = (show(entry).replace(" ", "") for show in (numbers.ours, numbers.published))
    return Text.assemble((ours, "bold" if entry.best else ""), (f"\n({published})" if published else "", "dim"))


def _width(head: Text, column: Sequence[Text]) -> int:
    """What the entries need, and the words over them, which may stand in several lines."""
    lines = [line for entry in column for line in entry.plain.split("\n")]
    return min(WIDEST, max(map(len, [*lines, *head.plain.split()])))


def _blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    """Columns that fit beside the first, block after block; each block begins with the first."""
    blocks, left = [[0]], room - widths[0]
    for i, width in enumerate(widths[1:], start=1):
        if width + GAP > left and len(blocks[-1]) > 1:
            blocks.append([0])
            left = room - widths[0]
        blocks[-1].append(i)
        left -= width + GAP
    return blocks


def _claim(claim: Claim) -> Text:
    from rich.text import Text

    verdict = (f"{MARKS[claim.verdict]} {claim.verdict}", f"bold {COLOURS[claim.verdict]}")
    return Text.assemble(verdict, f": {claim.text} ", (f"({claim.why})", "dim"))
