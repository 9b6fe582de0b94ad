"""Every error a user can meet. Each message says what was given, what was expected and how to mend it."""

from __future__ import annotations


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
