"""The suite that says whether a confounder layer keeps its contract."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import torch
from torch import Tensor, nn

import rmdn
from rmdn.errors import InputError
from rmdn.layers import ConfounderLayer
from rmdn.strategies.base import Strategy
from rmdn.strategies.plain import Plain
from rmdn.testing.runs import Done, Stage, make_batch, make_settings, run, same, train_on
from rmdn.testing.strategy import MakeNetwork, check_learns, check_predicts_purely, check_repeats, check_resumes

MakeLayer = Callable[[int, int], ConfounderLayer]
MakeStrategy = Callable[[], Strategy]


def check_layer(make_layer: MakeLayer, make_strategy: MakeStrategy = Plain) -> None:
    """Assert all that a network, the loop and their users rely on in a layer; takes some seconds.

    Args:
        make_layer: (num_confounders, num_classes) -> a fresh layer, the same each time; a class will do.
        make_strategy: makes the strategy by which networks with such layers are trained.
    """
    make_network = networks_with(make_layer)
    for num_logits, num_confounders in ((1, 1), (2, 3), (7, 1), (7, 3)):
        check_learns(make_strategy, make_network, num_logits, num_confounders)
    check_repeats(make_strategy, make_network)
    check_resumes(make_strategy, make_network)
    check_predicts_purely(make_strategy, make_network)
    check_removes(make_layer, make_strategy)
    check_evaluates_purely(make_layer, make_strategy)
    check_refuses(make_layer, make_strategy)
    check_travels(make_layer, make_strategy)


def networks_with(make_layer: MakeLayer) -> MakeNetwork:
    """Networks for images (B, 1, 8, 8) with a layer behind a convolution and one behind a linear layer."""

    def make_network(num_logits: int, num_confounders: int) -> nn.Module:
        network = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 32), nn.ReLU(), nn.Linear(32, num_logits)
        )
        options = {"num_confounders": num_confounders, "num_classes": max(num_logits, 2)}
        return rmdn.deconfound(network, ["0", "3"], layer=make_layer, sample=torch.zeros(2, 1, 8, 8), **options)

    return make_network


def check_removes(make_layer: MakeLayer, make_strategy: MakeStrategy) -> None:
    """Features that go along with the confounder, of weights that stand still, no longer do so behind the layer."""

    def part(rows: int, num_classes: int, num_confounders: int) -> tuple[Tensor, Tensor, Tensor]:
        images, confounders, labels, _ = make_batch(num_classes, num_confounders, rows, 0)
        confounders = confounders + labels[:, None] / num_classes
        return images + confounders.sum(1).view(-1, 1, 1, 1), 5 + confounders, labels

    for num_classes, num_confounders in ((2, 1), (7, 3)):
        train, test = (part(rows, num_classes, num_confounders) for rows in (280, 210))
        network = networks_with(make_layer)(num_classes, num_confounders)
        done = train_on([Stage(train, test)], make_strategy(), network, make_settings(epochs=100, batch_size=280, lr=1e-6))
        layer, images, confounders, labels = _first_layer(done).eval(), *test
        with torch.no_grad():
            before = _plain(done).get_submodule("0")(images)
            after = layer(before, confounders)
        told = [_explained(features, confounders, labels) for features in (before, after)]
        assert told[1] < 0.2 * told[0], (
            f"Within the classes {told[0]:.0%} of the features before the layer is explained by {num_confounders} "
            f"confounders, and behind it {told[1]:.0%}; less than a fifth of it was expected."
        )


def check_evaluates_purely(make_layer: MakeLayer, make_strategy: MakeStrategy) -> None:
    """In evaluation, and frozen, nothing changes; labels are not looked at, and each row is taken by itself."""
    layer, z, c, y = _trained(make_layer, make_strategy)
    before = copy.deepcopy(layer.state_dict())
    given = z.clone()
    first, again = layer.eval()(z, c), layer(z, c)
    told, few = layer(z, c, y), layer(z[:5], c[:5])
    with layer.train().frozen():
        frozen = layer(z, c, y)
    assert torch.equal(first, again), "Two passes over one batch in evaluation differ."
    assert (first.shape, first.dtype) == (z.shape, z.dtype), "The residual's shape or dtype is not the features'."
    assert torch.equal(first, told), "The layer looks at labels in evaluation."
    assert torch.allclose(first[:5], few, atol=1e-5), "The residual of a row depends on the rows beside it."
    assert torch.allclose(first, frozen, atol=1e-6), "Within .frozen() the layer does not do what it does in evaluation."
    assert same(before, layer.state_dict()), "A pass in evaluation, or a frozen one, changed the state."
    assert torch.equal(z, given), "A pass in evaluation changed the features that it was given."


def check_refuses(make_layer: MakeLayer, make_strategy: MakeStrategy) -> None:
    """A batch that does not fit gives an InputError (a ValueError that says what is wrong), and changes nothing."""
    layer, z, c, y = _trained(make_layer, make_strategy)
    hole, broken = c.clone(), z.clone()
    hole[3], broken[3] = torch.nan, torch.inf
    wrong: dict[str, tuple[Tensor | None, ...]] = {
        "fewer labels than features": (z, c, y[:-1]),
        "fewer rows of confounders than features": (z, c[:-1], y),
        "a column of confounders too many": (z, torch.cat([c, c], dim=1), y),
        "a label out of range": (z, c, y + 5),
        "no labels in training": (z, c, None),
        "no confounders": (z, None, y),
        "a confounder that is NaN": (z, hole, y),
        "infinite features": (broken, c, y),
        "features of another shape": (z[:, :, 1:], c, y),
        "whole numbers for features": (z.long(), c, y),
    }
    for what, batch in wrong.items():
        before, message = copy.deepcopy(layer.state_dict()), ""
        try:
            layer.train()(*batch)
        except InputError as error:
            message = str(error)
        assert len(message) > 20, f"A batch with {what} was taken; an InputError that says so was expected."
        assert same(before, layer.state_dict()), f"A batch with {what} was refused, but it changed the state."


def check_travels(make_layer: MakeLayer, make_strategy: MakeStrategy) -> None:
    """Copies, pickles, and fresh layers that load the state go on as the layer itself does; a cast keeps the state."""
    layer, z, c, y = _trained(make_layer, make_strategy)
    loaded = make_layer(1, 2)
    loaded.load_state_dict(copy.deepcopy(layer.state_dict()))
    others = {
        "copied by deepcopy": copy.deepcopy(layer),
        "pickled": pickle.loads(pickle.dumps(layer)),
        "loaded into a fresh layer": loaded,
        "moved by .to('cpu')": copy.deepcopy(layer).to("cpu"),
    }
    expected = layer.eval()(z, c), layer.train()(z, c, y), layer.eval()(z, c)
    for how, other in others.items():
        got = other.eval()(z, c), other.train()(z, c, y), other.eval()(z, c)
        assert same(expected, got), f"A layer that was {how} does not go on as the original does."
    for kind in (torch.float64, torch.float16):
        cast = copy.deepcopy(layer).to(kind).eval()(z, c)
        assert torch.allclose(cast, expected[2], atol=1e-4), f"A layer loses part of its state by .to({kind})."


def _trained(make_layer: MakeLayer, make_strategy: MakeStrategy) -> tuple[ConfounderLayer, Tensor, Tensor, Tensor]:
    """A layer that a run has trained, by itself, and a batch for it: features (B, 4, 6, 6), confounders, labels."""
    layer = _first_layer(run(make_strategy(), networks_with(make_layer)(2, 1)))
    _, c, y, _ = make_batch(2, 1, 24, 0)
    return layer, torch.randn(24, 4, 6, 6, generator=torch.Generator().manual_seed(0)), c, y


def _first_layer(done: Done) -> ConfounderLayer:
    assert isinstance(done.network, rmdn.Deconfounded)
    return done.network.insertions[0].layer


def _plain(done: Done) -> nn.Module:
    assert isinstance(done.network, rmdn.Deconfounded)
    return done.network.remove()


def _explained(features: Tensor, confounders: Tensor, labels: Tensor) -> float:
    """What share of the features' (B, ...) spread within the classes a regression on the confounders explains."""
    z, c = features.flatten(1).double(), confounders.double()
    for k in labels.unique():
        z[labels == k] -= z[labels == k].mean(0)
        c[labels == k] -= c[labels == k].mean(0)
    fit = c @ torch.linalg.lstsq(c, z).solution
    return float(fit.square().sum() / z.square().sum())
