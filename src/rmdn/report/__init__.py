"""Results -> one HTML file with pictures that needs nothing else, and the same tables in the terminal."""

from rmdn.report.console import terminal
from rmdn.report.html import write
from rmdn.report.parts import Cell, Claim, Part, Picture, Report, Section, Table, Verdict

__all__ = ["Cell", "Claim", "Part", "Picture", "Report", "Section", "Table", "Verdict", "terminal", "write"]
