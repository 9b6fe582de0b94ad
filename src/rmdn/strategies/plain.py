"""Plain training: descend the task's loss, stage after stage, with nothing to hold on to."""

from __future__ import annotations

from rmdn.strategies.base import Strategy


class Plain(Strategy):
    """What the contract does when nothing is changed: cross-entropy, one step a batch."""
