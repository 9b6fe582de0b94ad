"""ACIL and F-OAL: the backbone stays after the first stage, and stage after stage learns what joint training would."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import rmdn
from rmdn.strategies import ACIL, FOAL, Batch, StageData
from rmdn.strategies.foal import moments, pooled
from rmdn.training import Settings, train
from rmdn.training.opening import one_device

SETTINGS = Settings(epochs=3, batch_size=16, lr=1e-2)
STRATEGIES = {"acil": lambda: ACIL(at="1", size=40, ridge=0.5), "foal": lambda: FOAL(["1", "2"], size=40, ridge=0.5)}


def make_batch(rows=40, stage=0, classes=3):
    random = torch.Generator().manual_seed(stage)
    labels = torch.randint(classes, (rows,), generator=random)
    images = torch.randn(rows, 1, 4, 4, generator=random) + labels.view(-1, 1, 1, 1)
    return Batch(images, torch.randn(rows, 1, generator=random), labels, stage)


def make_network(deconfounded=False):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 3))
    if not deconfounded:
        return network
    return rmdn.deconfound(network, at=["1"], num_confounders=1, num_classes=3, sample=torch.randn(4, 1, 4, 4))


class Stage:
    def __init__(self, stage):
        self.train, self.test = make_batch(stage=stage)[:3], make_batch(20, stage=stage + 50)[:3]


STAGES = [Stage(k) for k in range(3)]


def ridge(strategy, network, batches):
    """Joint training: one solution of (X'X + gamma I) W = X'Y over all rows of all stages."""
    X = torch.cat([strategy.expand(strategy.look(network, batch)) for batch in batches])
    Y = F.one_hot(torch.cat([batch.labels for batch in batches]), 3).double()
    return torch.linalg.solve(X.mT @ X + strategy.ridge * torch.eye(X.shape[1]).double(), X.mT @ Y)


def learned(name, stages, deconfounded=False, **changes):
    network, strategy = make_network(deconfounded), STRATEGIES[name]()
    train(network, stages, strategy, Settings(**{**vars(SETTINGS), **changes}), progress=False)
    return network, strategy


@pytest.mark.parametrize("name", STRATEGIES)
def test_stage_after_stage_equals_joint_training(name):
    network, strategy = learned(name, STAGES)
    joint = ridge(strategy, network, [make_batch(stage=k) for k in range(3)])
    assert (strategy.learned.beta - joint).norm() <= 1e-5 * joint.norm()


@pytest.mark.parametrize("deconfounded", [False, True])
@pytest.mark.parametrize("name", STRATEGIES)
def test_the_backbone_stays_after_the_first_stage(name, deconfounded):
    """Parameters, running statistics and R-MDN's coefficients, bit for bit; momentum and weight decay could move them."""
    moving = {"optimizer": "adamw", "weight_decay": 0.1, "schedule_scope": "run", "schedule": "constant"}
    (first, _), (last, _) = (learned(name, stages, deconfounded, **moving) for stages in (STAGES[:1], STAGES))
    for key, value in first.state_dict().items():
        assert torch.equal(value, last.state_dict()[key]), key


def test_later_stages_take_no_gradients():
    network, strategy = make_network(), FOAL(["1"], size=20)
    fabric, batch = one_device(SETTINGS), make_batch()
    data = StageData(0, 40, 3, lambda: iter([batch]))
    strategy.setup(network, fabric, batch)
    strategy.begin_stage(network, data)
    strategy.end_stage(network, data)
    before = copy.deepcopy(network.state_dict())

    def never(*_):
        raise AssertionError("a backward pass, or an optimizer's step")

    class Never:
        zero_grad = step = never

    outcome = strategy.step(network.train(), make_batch(stage=1), Never(), never)
    assert not outcome.loss.requires_grad
    assert network.training
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert strategy.epochs(1, planned=100) == 1
    assert ACIL(at="1").epochs(1, planned=100) == 0


def test_an_online_step_is_judged_before_it_learns():
    network, strategy = learned("foal", STAGES[:1])
    batch = make_batch(stage=1)
    with torch.no_grad():
        said = strategy.predict(network.eval(), batch)
    outcome = strategy.step(network, batch, None, None)
    torch.testing.assert_close(outcome.logits, said)
    with torch.no_grad():
        assert not torch.allclose(strategy.predict(network, batch), said)


@pytest.mark.parametrize("size", [1, 7, 40])
def test_the_online_classifier_does_not_depend_on_the_batches(size):
    """One row at a time or all at once: the recursion is exact."""
    network, strategy = learned("foal", STAGES[:1])
    whole, parts = copy.deepcopy(strategy.learned), make_batch(stage=1)
    for first in range(0, 40, size):
        strategy.step(network, Batch(*(part[first : first + size] for part in parts[:3]), 1), None, None)
    joint = ridge(strategy, network, [make_batch(), parts])
    assert (strategy.learned.beta - joint).norm() <= 1e-5 * joint.norm()
    assert not torch.equal(whole.beta, strategy.learned.beta)


def test_fused_features_are_pooled_and_scaled():
    torch.testing.assert_close(
        pooled(torch.ones(2, 3, 4, 5) * torch.arange(3.0).view(3, 1, 1)), torch.arange(3.0).repeat(2, 1)
    )
    tokens = torch.randn(2, 6, 4)
    torch.testing.assert_close(pooled(tokens), tokens.mean(1))
    rows = torch.randn(50, 3) * torch.tensor([1.0, 30.0, 0.0]) + torch.tensor([0.0, 100.0, 7.0])
    center, scale = moments(rows.split(9))
    torch.testing.assert_close(center, rows.mean(0))
    torch.testing.assert_close(scale[:2], rows.std(0, correction=0)[:2])
    assert scale[2] == 1
