"""Gate: a stage ends with the best network that was looked at, and noise and confounders are no reason to change."""

import copy
import functools

import pytest
import torch
from torch import nn

import rmdn
from rmdn.errors import SettingError
from rmdn.strategies import Batch, Gate, LwF, StageData, Strategy
from rmdn.strategies import gate as gates
from rmdn.strategies.gate import better, evidence
from rmdn.training import Settings, train

SETTINGS = Settings(epochs=6, batch_size=32, lr=1e-2, holdout=0.3)


class Stage:
    """Pixels that show the label in one place and a confounder in another; or labels that are noise."""

    def __init__(self, seed, *, noise=False, place=0, rows=240):
        random = torch.Generator().manual_seed(seed)

        def split():
            labels = torch.randint(2, (rows,), generator=random)
            c = torch.randn(rows, 1, generator=random) + labels[:, None]
            images = torch.randn(rows, 12, generator=random)
            images[:, place : place + 3] += 1.5 * labels[:, None]
            images[:, 9:] += c
            return images, c, torch.randint(2, (rows,), generator=random) if noise else labels

        self.train, self.test = split(), split()


def make_network(deconfounded=True):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 2))
    if not deconfounded:
        return network
    return rmdn.deconfound(network, at=["0"], num_confounders=1, num_classes=2, sample=torch.randn(4, 12))


def learned(stages, gate, deconfounded=True, **options):
    network = make_network(deconfounded)
    return network, train(network, stages, gate, SETTINGS, progress=False, **options)


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("deconfounded", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_stage_of_noise_changes_nothing(deconfounded, seed):
    stages, gate = [Stage(0), Stage(seed, noise=True)], Gate(looks=3)
    network, result = learned(stages, gate, deconfounded)
    before, _ = learned(stages[:1], Gate(looks=3), deconfounded)
    assert gate.taken[0] > 0
    assert gate.taken[1] == 0
    assert same(network.state_dict(), before.state_dict())
    assert torch.equal(result.R[0], result.R[1])


def test_a_stage_with_something_new_is_taken():
    gate = Gate(looks=3)
    _, result = learned([Stage(0), Stage(1, place=4)], gate)
    assert gate.taken[1] > 0
    assert result.R[1, 1] > result.R[0, 1] + 0.1


# What counts as knowing more


class Says(Strategy):
    """Answers by a rule, whatever the network."""

    def __init__(self, rule):
        self.rule = rule

    def predict(self, network, batch):
        return self.rule(batch)


def judged(rule, rows=800):
    """The evidence for a rule on rows of two classes, which differ in a signal (the image) and in a confounder."""
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % 2
    signal, c = torch.randn(2, rows, 1, generator=random) + torch.stack([labels, 1.5 * labels])[..., None] - 0.5
    batch = Batch(signal, c, labels)
    return evidence(Says(rule), nn.Identity(), StageData(1, 0, 0, lambda: iter(()), raw_held_out=lambda: iter([batch])))


def score(values):
    return torch.cat([-values, values], dim=1)


def gain(rule):
    """Above a rule that says nothing, in nats a row."""
    return float((judged(rule) - judged(lambda batch: torch.zeros(800, 2))).mean())


@pytest.mark.parametrize(
    "rule",
    [
        lambda batch: score(batch.confounders),
        lambda batch: score(2 * batch.confounders + batch.confounders.square()),
        lambda batch: score(-batch.confounders),
        lambda batch: score(torch.randn(800, 1, generator=torch.Generator().manual_seed(4))),
    ],
    ids=["a line in the confounder", "a bend in the confounder", "the wrong way", "noise"],
)
def test_whoever_reads_the_confounder_alone_gains_nothing(rule):
    assert gain(rule) < 0.01 * gain(lambda batch: score(batch.images))


def test_whoever_reads_the_signal_gains_and_the_confounder_costs():
    signal = judged(lambda batch: score(batch.images))
    nothing = judged(lambda batch: torch.zeros(800, 2))
    assert better(signal, nothing, z=2.0)
    for weight in (0.5, -0.5):
        assert better(signal, judged(lambda batch, w=weight: score(batch.images + w * batch.confounders)), z=2.0)
    assert better(judged(lambda batch: score(batch.images)[:, 1:]), nothing, z=2.0)  # one logit
    assert better(
        signal, judged(lambda batch: score(batch.images + 2)), z=2.0
    )  # a shift costs: answers are used as they are
    sure = judged(lambda batch: score(7 * batch.images))  # being too sure costs nothing
    assert float((sure - signal).mean().abs()) < 1e-3


def test_better_is_by_so_many_standard_errors():
    gain = torch.tensor([0.0, 2.0, 1.0, 1.0])  # mean 1, standard error .408
    assert better(gain, torch.zeros(4), z=2.4)
    assert not better(gain, torch.zeros(4), z=2.5)
    assert not better(torch.ones(4), torch.ones(4), z=0.0)


# When it looks, and what that leaves behind


@pytest.mark.parametrize(
    ("epochs", "looks", "expected"),
    [
        (12, 5, {2: 1, 4: 2, 7: 3, 9: 4, 11: 5}),
        (3, 10, {0: 3, 1: 6, 2: 10}),
        (4, 1, {3: 1}),
    ],
)
def test_looks_are_spread_evenly_and_the_last_is_at_the_end(monkeypatch, epochs, looks, expected):
    gate, seen = Gate(looks=looks), {}
    monkeypatch.setattr(gate, "look", lambda network, data, number: seen.setdefault(epoch, number))
    for epoch in range(epochs):
        gate.end_epoch(None, None, epoch, epochs)
    assert seen == expected


def test_training_goes_on_as_if_nobody_had_looked():
    """Losses within the first stage, dropout and all; later stages begin where the gate has left the network."""
    _, gated = learned([Stage(0)], Gate(looks=6))
    _, free = learned([Stage(0)], Strategy())
    assert [epoch.loss for epoch in gated.history] == [epoch.loss for epoch in free.history]


def test_the_kept_network_is_recalibrated_and_wrapped_strategies_see_it():
    gate = Gate(LwF(), looks=3)
    stage = Stage(0)
    network, _ = learned([stage], gate)
    assert same(network.state_dict(), gate.kept)
    assert same(gate.base.teacher.state_dict(), gate.kept)
    again = copy.deepcopy(network)
    train_rows = []
    end_stage = Gate.end_stage

    class Keeping(Gate):
        def end_stage(self, network, data):
            train_rows.extend(batch[:3] for batch in data)
            end_stage(self, network, data)

    learned([stage], Keeping(LwF(), looks=3))
    rmdn.recalibrate(again, train_rows)
    images, c, _ = stage.test
    with torch.no_grad():
        ours, theirs = (model.eval()(images, confounders=c) for model in (network, again))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


class KilledError(Exception):
    pass


@functools.cache
def whole():
    gate = Gate(looks=2)
    return (*learned([Stage(0), Stage(1, place=4)], gate), gate)


@pytest.mark.parametrize(
    ("within", "after"), [("epoch", 1), ("epoch", 4), ("epoch", 7), ("epoch", 10), ("look", 3), ("look", 6)]
)
def test_a_killed_run_ends_as_an_uninterrupted_one(tmp_path, monkeypatch, within, after):
    calls = []

    def dying(*_):
        calls.append(1)
        if len(calls) == after:
            raise KilledError

    def copied(network, real=gates.copied):
        dying()
        return real(network)

    stages, gate = [Stage(0), Stage(1, place=4)], Gate(looks=2)
    on_epoch = dying if within == "epoch" else None
    with monkeypatch.context() as patched:
        if within == "look":
            patched.setattr(gates, "copied", copied)
        with pytest.raises(KilledError):
            learned(stages, Gate(looks=2), folder=tmp_path, checkpoint_minutes=0, on_epoch=on_epoch)
    network, result = learned(stages, gate, folder=tmp_path, checkpoint_minutes=0)
    expected, expected_result, expected_gate = whole()
    assert same(network.state_dict(), expected.state_dict())
    assert torch.equal(result.R, expected_result.R)
    assert gate.taken == expected_gate.taken
    assert same(gate.kept, expected_gate.kept)
    assert torch.equal(gate.known, expected_gate.known)


# What it needs


def test_it_needs_held_out_rows_of_two_classes():
    network = make_network()
    untrained = copy.deepcopy(network.state_dict())
    with pytest.raises(SettingError, match="holdout=0"):
        train(network, [Stage(0)], Gate(looks=1), Settings(epochs=1), progress=False)
    assert same(untrained, network.state_dict())  # it says so before the first step
    one_class = Stage(0)
    one_class.train[2].fill_(1)
    with pytest.raises(SettingError, match="two classes"):
        train(make_network(deconfounded=False), [one_class], Gate(looks=1), Settings(epochs=1, holdout=0.2), progress=False)
    for options in ({"z": float("nan")}, {"looks": 0}):
        with pytest.raises(SettingError, match="at least one look"):
            Gate(**options)
