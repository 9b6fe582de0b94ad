"""Every strategy keeps its contract, alone and around a deconfounded network; and the suite catches what does not."""

import pytest
import torch
from torch import nn

import rmdn
from rmdn.strategies import ACIL, EWC, FOAL, BRNet, LwF, Outcome, PackNet, Pixel, Plain, Strategy
from rmdn.strategies.base import forward, task_loss
from rmdn.testing import (
    check_learns,
    check_predicts_purely,
    check_refuses_wrong_batches,
    check_repeats,
    check_resumes,
    check_strategy,
)

STRATEGIES = {
    "plain": Plain,
    "ewc": lambda: EWC(samples=20),
    "ewc, online": lambda: EWC(samples=20, mode="online", fisher="empirical", decay=0.9),
    "lwf": LwF,
    "packnet": PackNet,
    "packnet(ewc(lwf))": lambda: PackNet(EWC(LwF(), samples=20)),
    "brnet": lambda: BRNet(at="1"),
    "pixel": Pixel,
    "acil": lambda: ACIL(at="1", size=100),
    "foal": lambda: FOAL(["1", "2"], size=100),
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
