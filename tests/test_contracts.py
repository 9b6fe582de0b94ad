"""Every strategy keeps its contract, alone and around a deconfounded network; and the suite catches what does not."""

import pytest
import torch
from torch import nn

import rmdn
from rmdn.strategies import (
    ACIL,
    EWC,
    FOAL,
    MDN,
    PMDN,
    BRNet,
    Hinges,
    LwF,
    Outcome,
    PackNet,
    Pixel,
    Plain,
    Stagewise,
    Strategy,
)
from rmdn.strategies.base import forward, task_loss
from rmdn.testing import check_layer, check_strategy
from rmdn.testing.layer import check_evaluates_purely, check_refuses, check_removes, check_travels, networks_with
from rmdn.testing.strategy import (
    check_learns,
    check_predicts_purely,
    check_refuses_wrong_batches,
    check_repeats,
    check_resumes,
)

STRATEGIES = {
    "plain": Plain,
    "ewc": lambda: EWC(samples=20),
    "ewc, online": lambda: EWC(samples=20, mode="online", fisher="empirical", decay=0.9),
    "lwf": LwF,
    "packnet": PackNet,
    "packnet(ewc(lwf))": lambda: PackNet(EWC(LwF(), samples=20)),
    "brnet": lambda: BRNet(at="1"),
    "hinges": Hinges,
    "pixel": Pixel,
    "acil": lambda: ACIL(at="1", size=100),
    "foal": lambda: FOAL(["1", "2"], size=100),
    "stagewise(lwf)": lambda: Stagewise(LwF()),
    "pixel(foal(brnet(lwf)))": lambda: Pixel(FOAL(["1"], BRNet(LwF(), at="1"), size=100)),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategy(name):
    check_strategy(STRATEGIES[name])


def plain_network(num_logits, num_confounders):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, num_logits))


def deconfounded(num_logits, num_confounders):
    options = {"num_confounders": num_confounders, "num_classes": max(num_logits, 2)}
    return rmdn.deconfound(plain_network(num_logits, 1), at=["1"], sample=torch.randn(4, 1, 8, 8), **options)


@pytest.mark.parametrize(
    "make",
    [
        Plain,
        lambda: EWC(LwF(), samples=20),
        lambda: PackNet(prune=0.5),
        lambda: BRNet(at="1"),
        Pixel,
        lambda: ACIL(at="1", size=100),
        lambda: FOAL(["1", "2"], size=100),
    ],
    ids=["plain", "ewc(lwf)", "packnet", "brnet", "pixel", "acil", "foal"],
)
def test_strategy_with_rmdn(make):
    check_learns(make, deconfounded, 7, 3)
    check_resumes(make, deconfounded)
    check_predicts_purely(make, deconfounded)
    check_refuses_wrong_batches(make, deconfounded)


LAYERS = {"rmdn": (rmdn.RMDN, Plain), "mdn": (rmdn.MDN, MDN), "pmdn": (rmdn.PMDN, PMDN)}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    check_layer(*LAYERS[name])


@pytest.mark.parametrize(
    ("layer", "make"),
    [(rmdn.MDN, lambda: Stagewise(MDN())), (rmdn.MDN, lambda: LwF(MDN())), (rmdn.PMDN, lambda: PMDN(EWC(samples=20)))],
    ids=["stagewise(mdn)", "lwf(mdn)", "pmdn(ewc)"],
)
def test_strategies_around_the_layers(layer, make):
    make_network = networks_with(layer)
    check_learns(make, make_network, 7, 3)
    check_resumes(make, make_network)
    check_predicts_purely(make, make_network)
    check_refuses_wrong_batches(make, make_network)


class Idle(Strategy):
    def step(self, network, batch, optimizer, backward):
        with torch.no_grad():
            return self.loss(network, batch)


class Forgetful(Strategy):
    """Depends on a count that it does not save."""

    steps = 0

    def loss(self, network, batch):
        self.steps += 1
        loss, logits = super().loss(network, batch)
        return Outcome(loss * (1 + self.steps % 7), logits)


class Random(Strategy):
    random = torch.Generator().manual_seed(0)  # of the class: runs differ

    def loss(self, network, batch):
        loss, logits = super().loss(network, batch)
        return Outcome(loss * (1 + torch.rand((), generator=self.random)), logits)


class Peeking(Strategy):
    def predict(self, network, batch):
        return super().predict(network, batch) + 1e-3 * batch.labels[:, None]


class Restless(Strategy):
    def predict(self, network, batch):
        logits = super().predict(network, batch)
        next(network.parameters()).add_(1e-3)
        return logits


class BatchWise(Strategy):
    def predict(self, network, batch):
        logits = super().predict(network, batch)
        return logits - logits.mean(dim=0)


class Careless(Strategy):
    def loss(self, network, batch):
        logits = network(batch.images)
        rows = min(len(logits), len(batch.labels))
        return Outcome(task_loss(logits[:rows], batch.labels[:rows] % 2), logits)


class Hasty(Strategy):
    def loss(self, network, batch):
        with torch.no_grad():
            next(network.parameters()).mul_(1.01)
        logits = forward(network, batch)
        return Outcome(task_loss(logits, batch.labels), logits)


@pytest.mark.parametrize(
    ("strategy", "check", "message"),
    [
        (Idle, lambda make, net: check_learns(make, net, 7, 1), "separable"),
        (Forgetful, check_resumes, "killed"),
        (Random, check_repeats, "one seed"),
        (Peeking, check_predicts_purely, "labels"),
        (Restless, check_predicts_purely, "differ|changed"),
        (BatchWise, check_predicts_purely, "beside it"),
        (Careless, check_refuses_wrong_batches, "fewer labels"),
        (Hasty, check_refuses_wrong_batches, "changed the state"),
    ],
)
def test_suite_catches(strategy, check, message):
    with pytest.raises(AssertionError, match=message):
        check(strategy, plain_network)


class Nothing(rmdn.RMDN):
    def forward(self, features, confounders=None, labels=None):
        super().forward(features.clone(), confounders, labels)
        return features


class Learner(rmdn.RMDN):
    def forward(self, features, confounders=None, labels=None):
        if not self.learning:
            self.beta += 1e-3
        return super().forward(features, confounders, labels)


class Teller(rmdn.RMDN):
    def forward(self, features, confounders=None, labels=None):
        out = super().forward(features, confounders, labels)
        return out if self.learning or labels is None else out + 1e-3 * labels.view(-1, 1, 1, 1)


class Neighbours(rmdn.RMDN):
    def forward(self, features, confounders=None, labels=None):
        out = super().forward(features, confounders, labels)
        return out if self.learning else out - out.mean(0)


class Hurried(rmdn.RMDN):
    def forward(self, features, confounders=None, labels=None):
        if self.learning:
            self.moments *= 1.01
        return super().forward(features, confounders, labels)


class Trusting(rmdn.RMDN):
    def forward(self, features, confounders=None, labels=None):
        return super().forward(features, confounders, labels % 2 if labels is not None else labels)


class Absent(rmdn.RMDN):
    """Counts in a plain attribute what it depends on."""

    batches = 0

    def forward(self, features, confounders=None, labels=None):
        self.batches += self.learning
        return super().forward(features, confounders, labels) * (1 + 1e-3 * self.batches)

    def __getstate__(self):
        return {**super().__getstate__(), "batches": 0}


@pytest.mark.parametrize(
    ("layer", "check", "message"),
    [
        (Nothing, check_removes, "less than a fifth"),
        (Learner, check_evaluates_purely, "differ|changed the state"),
        (Teller, check_evaluates_purely, "labels"),
        (Neighbours, check_evaluates_purely, "beside it"),
        (Hurried, check_refuses, "changed the state"),
        (Trusting, check_refuses, "out of range was taken"),
        (Absent, check_travels, "does not go on"),
        (Absent, lambda make, strategy: check_resumes(strategy, networks_with(make)), "killed"),
    ],
)
def test_layer_suite_catches(layer, check, message):
    with pytest.raises(AssertionError, match=message):
        check(layer, Plain)
