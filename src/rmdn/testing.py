"""Suites that say whether a strategy keeps its contract; for your own as well as for ours.

They need nothing but this package and `[study]`: call them in a test of your own, or at the prompt. What fails is an
AssertionError that says which promise was broken.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rmdn.errors import InputError
from rmdn.strategies.base import Batch, Strategy

if TYPE_CHECKING:
    from rmdn.training import Result, Settings

MakeStrategy = Callable[[], Strategy]
MakeNetwork = Callable[[int, int], nn.Module]


def check_strategy(make_strategy: MakeStrategy, make_network: MakeNetwork | None = None) -> None:
    """Assert all that the loop, and its users, rely on in a strategy; takes some seconds.

    Args:
        make_strategy: makes a fresh strategy, the same each time; a class will do.
        make_network: (num_logits, num_confounders) -> a network for images (B, 1, 8, 8), for a strategy that needs a
            special one; by default two linear layers.
    """
    make_network = make_network or _network
    for num_logits, num_confounders in ((1, 1), (2, 3), (7, 1), (7, 3)):
        check_learns(make_strategy, make_network, num_logits, num_confounders)
    check_repeats(make_strategy, make_network)
    check_resumes(make_strategy, make_network)
    check_predicts_purely(make_strategy, make_network)
    check_refuses_wrong_batches(make_strategy, make_network)


def check_learns(make_strategy: MakeStrategy, make_network: MakeNetwork, num_logits: int, num_confounders: int) -> None:
    """A problem that a line separates, the same in two stages, is solved."""
    result = _run(make_strategy(), make_network(num_logits, num_confounders), num_logits, num_confounders).result
    lowest = float(result.R[-1].min())
    assert lowest >= 0.9, (
        f"With {num_logits} logits and {num_confounders} confounders, the accuracy on a separable problem is "
        f"{lowest:.2f} after two stages; at least 0.90 was expected. All of it:\n{result.R}"
    )


def check_repeats(make_strategy: MakeStrategy, make_network: MakeNetwork) -> None:
    """The same seed gives the same result, bit for bit."""
    first, second = (_run(make_strategy(), make_network(2, 1)) for _ in range(2))
    _assert_same(first, second, "Two runs with one seed differ")


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
    _run(counting, make_network(2, 1))
    uninterrupted = _run(whole, make_network(2, 1))
    for share in (0.3, 0.7, 0.9):
        with tempfile.TemporaryDirectory() as folder:
            killed = make_strategy()
            killed.prepare = _failing(killed.prepare, at=int(share * calls))  # type: ignore[method-assign, assignment]
            try:
                _run(killed, make_network(2, 1), folder=Path(folder))
            except _KilledError:
                pass
            else:
                raise AssertionError(
                    "prepare was called less often in a second, equal run; the strategy is not repeatable."
                )
            resumed = _run(make_strategy(), make_network(2, 1), folder=Path(folder))
        _assert_same(
            uninterrupted,
            resumed,
            f"A run killed after {share:.0%} of its batches and resumed differs from a whole one",
        )


def check_predicts_purely(make_strategy: MakeStrategy, make_network: MakeNetwork) -> None:
    """Predicting changes nothing, repeats itself, does not look at labels, and takes each row by itself."""
    done = _run(make_strategy(), make_network(2, 1))
    network, strategy = done.network.eval(), done.strategy
    for stage in range(2):
        batch = strategy.prepare(_batch(2, 1, rows=12, stage=stage))
        before = _state(done)
        with torch.no_grad():
            first, again = strategy.predict(network, batch), strategy.predict(network, batch)
            other = strategy.predict(network, batch._replace(labels=1 - batch.labels))
            few = strategy.predict(network, Batch(batch.images[:5], batch.confounders[:5], batch.labels[:5], stage))
        assert torch.equal(first, again), "Two predictions of one batch differ."
        assert _same(before, _state(done)), "predict changed the state of the network or the strategy."
        assert torch.equal(first, other), "predict looks at the labels."
        assert torch.allclose(first[:5], few, atol=1e-5), "The prediction of a row depends on the rows beside it."


def check_refuses_wrong_batches(make_strategy: MakeStrategy, make_network: MakeNetwork) -> None:
    """A batch that does not fit gives an InputError (a ValueError that says what is wrong), and changes nothing."""
    from rmdn.training import Settings

    done = _run(make_strategy(), make_network(2, 1))
    network, strategy = done.network.train(), done.strategy
    good = strategy.prepare(_batch(2, 1, rows=12, stage=1))
    wrong = {
        "fewer labels than images": good._replace(labels=good.labels[:-1]),
        "fewer rows of confounders than images": good._replace(confounders=good.confounders[:-1]),
        "confounders of one dimension": good._replace(confounders=good.confounders[:, 0]),
        "a label out of range": good._replace(labels=good.labels + 5),
    }
    for what, batch in wrong.items():
        before, message = copy.deepcopy(_state(done)), ""
        try:
            strategy.step(network, batch, Settings().build_optimizer(network), lambda loss: loss.backward())
        except InputError as error:
            message = str(error)
        assert len(message) > 20, f"A batch with {what} was taken; an InputError that says so was expected."
        assert _same(before, _state(done)), f"A batch with {what} was refused, but it changed the state."


@dataclass
class _Done:
    network: nn.Module
    strategy: Strategy
    result: Result


@dataclass(frozen=True)
class _Stage:
    train: tuple[Tensor, Tensor, Tensor]
    test: tuple[Tensor, Tensor, Tensor]


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


def _network(num_logits: int, num_confounders: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, num_logits))


def _batch(num_logits: int, num_confounders: int, rows: int, stage: int) -> Batch:
    """Classes that lie apart by many times the noise, confounders that have nothing to do with them."""
    random = torch.Generator().manual_seed(stage * 1000 + rows)
    classes = max(num_logits, 2)
    labels = torch.arange(rows) % classes
    images = 0.3 * torch.randn(rows, 64, generator=random)
    images[torch.arange(rows), 9 * labels] += 3.0
    confounders = torch.randn(rows, num_confounders, generator=random)
    return Batch(images.view(rows, 1, 8, 8), confounders, labels, stage)


def _run(
    strategy: Strategy, network: nn.Module, num_logits: int = 2, num_confounders: int = 1, folder: Path | None = None
) -> _Done:
    from lightning.fabric import Fabric

    from rmdn.training import train

    fabric = Fabric(accelerator="cpu", devices=1)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        random = torch.Generator().manual_seed(1)
        for parameter in network.parameters():  # equal weights for every run, however the network was made
            parameter.copy_(torch.randn(parameter.shape, generator=random) / max(parameter[0].numel(), 4) ** 0.5)
    stages = [_Stage(*(_batch(num_logits, num_confounders, rows, stage)[:3] for rows in (140, 42))) for stage in range(2)]
    result = train(
        network, stages, strategy, _settings(), fabric=fabric, folder=folder, checkpoint_minutes=0, progress=False
    )
    return _Done(network, strategy, result)


def _settings() -> Settings:
    from rmdn.training import Settings

    return Settings(epochs=12, batch_size=28, lr=1e-2, schedule="cosine", seed=3)


def _state(done: _Done) -> Any:
    return {"network": done.network.state_dict(), "strategy": done.strategy.state_dict()}


def _assert_same(one: _Done, other: _Done, problem: str) -> None:
    assert _same(one.network.state_dict(), other.network.state_dict()), f"{problem}: the networks."
    assert _same(one.strategy.state_dict(), other.strategy.state_dict()), f"{problem}: the strategies' states."
    assert torch.equal(one.result.R, other.result.R), f"{problem}: the accuracies."
    losses = [[(e.loss, e.accuracy) for e in done.result.history] for done in (one, other)]
    assert losses[0] == losses[1], f"{problem}: the losses on the way."


def _same(one: Any, other: Any) -> bool:
    """Whether two nests of dicts, lists, tensors and numbers are equal, bit for bit."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
