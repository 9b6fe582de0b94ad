"""What a report is made of: plain values that whoever has results puts together. Nothing here knows an experiment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from rmdn.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Text = str
Verdict = Literal["holds", "does not hold", "cannot tell"]
MARKS: dict[Verdict, str] = {"holds": "✓", "does not hold": "✗", "cannot tell": "?"}
PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Cell:
    """One number of ours beside a published one."""

    ours: float | None  # mean over seeds; None where no run is there yet
    spread: float | None = None  # standard deviation or half-width of the interval
    published: float | None = None
    published_spread: float | None = None
    digits: int = 3
    best: bool = False  # set by whoever builds the table


@dataclass(frozen=True)
class Table:
    """Rows of words and numbers under a header; `column_groups` stand over all columns but the first."""

    caption: str
    columns: Sequence[str]  # the first is the row's name
    rows: Sequence[Sequence[Text | Cell]]
    notes: Sequence[str] = ()  # e.g. the tests under the table
    column_groups: Sequence[tuple[str, int]] = ()  # (title, columns it spans)

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows, start=1):
            if len(row) != len(self.columns):
                raise InputError(
                    f"Row {number} of the table {self.caption!r} has {len(row)} entries; expected {len(self.columns)}, one"
                    f" for each of the columns {list(self.columns)}."
                )
        spanned, expected = sum(span for _, span in self.column_groups), len(self.columns) - 1
        if self.column_groups and spanned != expected:
            raise InputError(
                f"The column groups of the table {self.caption!r} span {spanned} columns; expected {expected}, all but the"
                " first: give ('', n) where n columns have no group."
            )

    def cells(self) -> Iterator[Cell]:
        """All numbers, row by row."""
        return (entry for row in self.rows for entry in row if isinstance(entry, Cell))

    def wordy(self, column: int) -> bool:
        """Whether a column holds words alone."""
        return not any(isinstance(row[column], Cell) for row in self.rows)


@dataclass(frozen=True)
class Picture:
    """A figure of matplotlib, or the bytes of a PNG file."""

    caption: str
    figure: Figure | bytes
    alt: str  # what is to be seen, for those who cannot

    def __post_init__(self) -> None:
        if isinstance(self.figure, bytes) and not self.figure.startswith(PNG):
            raise InputError(f"The picture {self.caption!r} was given as bytes that are no PNG file; give PNG or a Figure.")


@dataclass(frozen=True)
class Claim:
    """What the paper says, and whether a computed criterion bears it out."""

    text: str
    verdict: Verdict
    why: str  # the criterion, with numbers

    def __post_init__(self) -> None:
        if self.verdict not in MARKS:
            raise InputError(
                f"The verdict {self.verdict!r} was given for the claim {self.text!r}; expected one of {list(MARKS)}."
            )


Part: TypeAlias = "Table | Picture"


@dataclass(frozen=True)
class Section:
    """One table or figure of the paper, or whatever else stands under one title."""

    key: str  # the anchor in the page: "table1"
    title: str
    text: str = ""  # plain paragraphs, parted by empty lines
    parts: Sequence[Part] = ()
    claims: Sequence[Claim] = ()
    command: str = ""  # the command that makes it again
    warnings: Sequence[str] = ()  # e.g. "made from stand-in data"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][\w-]*", self.key):
            raise InputError(
                f"The section key {self.key!r} was given; expected a letter, then letters, digits, '_' or '-'."
            )

    def missing(self) -> str:
        """What has no results yet, in a sentence; empty where all is there."""
        cells = [cell for part in self.parts if isinstance(part, Table) for cell in part.cells()]
        absent = sum(cell.ours is None for cell in cells)
        pictures = any(isinstance(part, Picture) for part in self.parts)
        if (self.command and not self.parts) or (cells and absent == len(cells) and not pictures):
            return "There are no runs for this section yet."
        if absent:
            return f"{absent} of {len(cells)} numbers have no run yet and are shown as a dash."
        return ""


@dataclass(frozen=True)
class Report:
    """A whole report."""

    title: str
    summary: str
    facts: Mapping[str, str]  # scale, seeds, machine, versions, date
    sections: Sequence[Section]

    def __post_init__(self) -> None:
        keys = [section.key for section in self.sections]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise InputError(f"More than one section has the key {', '.join(twice)}; expected a key of its own for each.")

    def claims(self) -> list[tuple[Section, Claim]]:
        """All claims, each with the section that it stands in."""
        return [(section, claim) for section in self.sections for claim in section.claims]

    def has_overview(self) -> bool:
        """Whether claims stand in more than one section, so that a list of all is worth its place."""
        return len({section.key for section, _ in self.claims()}) > 1
