"""Every error a user can meet. Each message says what was given, what was expected and how to mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RMDNError(Exception):
    """The ancestor of all errors of this package."""


class InputError(RMDNError, ValueError):
    """A batch, a table or a file that does not fit; nothing was changed."""


class SettingError(RMDNError, ValueError):
    """An option outside its range, or options that contradict each other."""


class PlacementError(RMDNError, ValueError):
    """A place in a network where no layer can be put."""


class UsageError(RMDNError, RuntimeError):
    """A call at a moment, or in a way, in which it cannot be right."""


class TrainingError(RMDNError, RuntimeError):
    """A training that has gone wrong in its numbers and cannot recover."""


class MissingExtraError(RMDNError, ImportError):
    """A feature whose optional dependencies are not installed."""


class RMDNWarning(UserWarning):
    """Something that a careful user would want to know; the computation goes on."""


def near(name: str, known: Iterable[str]) -> str:
    """For a message about a wrong name: those that are like it, whatever their case, else all there are."""
    names = {one.lower(): one for one in known}
    close = [names[one] for one in difflib.get_close_matches(name.lower(), names, n=3)]
    return f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names.values()) or 'none'}."
