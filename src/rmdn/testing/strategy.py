"""The suite that says whether a strategy keeps its contract."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from rmdn.errors import InputError
from rmdn.strategies.base import Batch, Strategy
from rmdn.testing.runs import assert_same, make_batch, run, same, state_of, two_linear_layers

MakeStrategy = Callable[[], Strategy]
MakeNetwork = Callable[[int, int], nn.Module]


def check_strategy(make_strategy: MakeStrategy, make_network: MakeNetwork | None = None) -> None:
    """Assert all that the loop, and its users, rely on in a strategy; takes some seconds.

    Args:
        make_strategy: makes a fresh strategy, the same each time; a class will do.
        make_network: (num_logits, num_confounders) -> a network for images (B, 1, 8, 8), for a strategy that needs a
            special one; by default two linear layers.
    """
    make_network = make_network or two_linear_layers
    for num_logits, num_confounders in ((1, 1), (2, 3), (7, 1), (7, 3)):
        check_learns(make_strategy, make_network, num_logits, num_confounders)
    check_repeats(make_strategy, make_network)
    check_resumes(make_strategy, make_network)
    check_predicts_purely(make_strategy, make_network)
    check_refuses_wrong_batches(make_strategy, make_network)


def check_learns(make_strategy: MakeStrategy, make_network: MakeNetwork, num_logits: int, num_confounders: int) -> None:
    """A problem that a line separates, the same in two stages, is solved."""
    result = run(make_strategy(), make_network(num_logits, num_confounders), num_logits, num_confounders).result
    lowest = float(result.R[-1].min())
    assert lowest >= 0.9, (
        f"With {num_logits} logits and {num_confounders} confounders, the accuracy on a separable problem is "
        f"{lowest:.2f} after two stages; at least 0.90 was expected. All of it:\n{result.R}"
    )


def check_repeats(make_strategy: MakeStrategy, make_network: MakeNetwork) -> None:
    """The same seed gives the same result, bit for bit."""
    first, second = (run(make_strategy(), make_network(2, 1)) for _ in range(2))
    assert_same(first, second, "Two runs with one seed differ")


def check_resumes(make_strategy: MakeStrategy, make_network: MakeNetwork) -> None:
    """A run that is killed, and goes on from its checkpoint with fresh objects, ends as if it had not been."""
    calls = 0
    whole, counting = make_strategy(), make_strategy()
    seen = counting.prepare

    def count(batch: Batch) -> Batch:
        nonlocal calls
        calls += 1
        return seen(batch)

    counting.prepare = count  # type: ignore[method-assign]
    run(counting, make_network(2, 1))
    uninterrupted = run(whole, make_network(2, 1))
    for share in (0.3, 0.7, 0.9):
        with tempfile.TemporaryDirectory() as folder:
            killed = make_strategy()
            killed.prepare = _failing(killed.prepare, at=int(share * calls))  # type: ignore[method-assign, assignment]
            try:
                run(killed, make_network(2, 1), folder=Path(folder))
            except _KilledError:
                pass
            else:
                raise AssertionError(
                    "prepare was called less often in a second, equal run; the strategy is not repeatable."
                )
            resumed = run(make_strategy(), make_network(2, 1), folder=Path(folder))
        assert_same(
            uninterrupted,
            resumed,
            f"A run killed after {share:.0%} of its batches and resumed differs from a whole one",
        )


def check_predicts_purely(make_strategy: MakeStrategy, make_network: MakeNetwork) -> None:
    """Predicting changes nothing, repeats itself, does not look at labels, and takes each row by itself."""
    done = run(make_strategy(), make_network(2, 1))
    network, strategy = done.network.eval(), done.strategy
    for stage in range(2):
        batch = strategy.prepare(make_batch(2, 1, rows=12, stage=stage))
        before = state_of(done)
        with torch.no_grad():
            first, again = strategy.predict(network, batch), strategy.predict(network, batch)
            other = strategy.predict(network, batch._replace(labels=1 - batch.labels))
            few = strategy.predict(network, Batch(batch.images[:5], batch.confounders[:5], batch.labels[:5], stage))
        assert torch.equal(first, again), "Two predictions of one batch differ."
        assert same(before, state_of(done)), "predict changed the state of the network or the strategy."
        assert torch.equal(first, other), "predict looks at the labels."
        assert torch.allclose(first[:5], few, atol=1e-5), "The prediction of a row depends on the rows beside it."


def check_refuses_wrong_batches(make_strategy: MakeStrategy, make_network: MakeNetwork) -> None:
    """A batch that does not fit gives an InputError (a ValueError that says what is wrong), and changes nothing."""
    from rmdn.training import Settings

    done = run(make_strategy(), make_network(2, 1))
    network, strategy = done.network.train(), done.strategy
    good = strategy.prepare(make_batch(2, 1, rows=12, stage=1))
    wrong = {
        "fewer labels than images": good._replace(labels=good.labels[:-1]),
        "fewer rows of confounders than images": good._replace(confounders=good.confounders[:-1]),
        "confounders of one dimension": good._replace(confounders=good.confounders[:, 0]),
        "a label out of range": good._replace(labels=good.labels + 5),
    }
    for what, batch in wrong.items():
        before, message = copy.deepcopy(state_of(done)), ""
        try:
            strategy.step(network, batch, Settings().build_optimizer(network), lambda loss: loss.backward())
        except InputError as error:
            message = str(error)
        assert len(message) > 20, f"A batch with {what} was taken; an InputError that says so was expected."
        assert same(before, state_of(done)), f"A batch with {what} was refused, but it changed the state."


class _KilledError(Exception):
    """Stands for the end of a process."""


def _failing(prepare: Callable[[Batch], Batch], at: int) -> Callable[[Batch], Batch]:
    calls = 0

    def fail_at_last(batch: Batch) -> Batch:
        nonlocal calls
        calls += 1
        if calls == at:
            raise _KilledError
        return prepare(batch)

    return fail_at_last
