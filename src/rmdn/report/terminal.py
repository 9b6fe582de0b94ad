"""The same tables and verdicts in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmdn.extras import need
from rmdn.report import numbers
from rmdn.report.parts import MARKS, Cell, Claim, Report, Section, Table, Text, Verdict

if TYPE_CHECKING:
    from rich.console import Console

COLOURS: dict[Verdict, str] = {"holds": "green", "does not hold": "red", "cannot tell": "yellow"}


def terminal(report: Report, console: Console | None = None) -> None:
    """Print tables, ours with the published numbers dim beside them, and verdicts; pictures are named by their captions."""
    console = console or need("rich.console", "study").Console()
    assert console is not None
    text = need("rich.text", "study").Text
    console.rule(text(report.title, style="bold"))
    console.print(text(report.summary))
    for name, fact in report.facts.items():
        console.print(text.assemble((f"{name}: ", "dim"), fact))
    for section in report.sections:
        _section(section, console, text)


def _section(section: Section, console: Console, text: Any) -> None:
    console.print()
    console.rule(text(section.title), align="left")
    for warning in (*section.warnings, section.missing()):
        if warning:
            console.print(text(f"! {warning}", style="yellow"))
    for part in section.parts:
        console.print(_table(part, text) if isinstance(part, Table) else text(f"Picture, in the page: {part.caption}"))
        for note in part.notes if isinstance(part, Table) else ():
            console.print(text(note, style="dim"))
    for claim in section.claims:
        console.print(_claim(claim, text))
    if section.command:
        console.print(text(f"$ {section.command}", style="dim"))


def _table(table: Table, text: Any) -> Any:
    shown = need("rich.table", "study").Table(caption=text(table.caption), caption_justify="left")
    groups = ["", *(group for group, span in table.column_groups for _ in range(span))]
    for i, column in enumerate(table.columns):
        title = f"{groups[i]}\n{column}" if table.column_groups else column
        shown.add_column(text(title), justify="left" if i == 0 else "right")
    for row in table.rows:
        shown.add_row(*(_entry(entry, text) for entry in row))
    return shown


def _entry(entry: Text | Cell, text: Any) -> Any:
    """Ours, then published; no spaces around ±, so that a narrow column breaks between the two."""
    if not isinstance(entry, Cell):
        return text(entry)
    ours, published = (show(entry).replace(" ", "") for show in (numbers.ours, numbers.published))
    parts = [(ours, "bold" if entry.best else "")] + ([(f" {published}", "dim")] if published else [])
    return text.assemble(*parts)


def _claim(claim: Claim, text: Any) -> Any:
    verdict = (f"{MARKS[claim.verdict]} {claim.verdict}", f"bold {COLOURS[claim.verdict]}")
    return text.assemble(verdict, f": {claim.text} ", (f"({claim.why})", "dim"))
