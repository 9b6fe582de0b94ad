"""Layers in a user's network: where, with what effect, and the way back; recalibration against least squares."""

import copy
import re

import pytest
import torch
from torch import nn

import rmdn
from rmdn.errors import InputError, PlacementError, UsageError


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3))
        self.side = nn.Linear(4, 4)
        self.head = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x):
        pooled = self.body(x).mean((2, 3))
        self.side(pooled)  # computed, never used
        return {"logits": self.head(pooled), "pooled": [pooled]}


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Network()


@pytest.fixture
def study():
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (300,), generator=g)
    c = torch.randn(300, 1, generator=g) + y[:, None]
    return torch.randn(300, 1, 8, 8, generator=g) + c[:, :, None, None] + y[:, None, None, None], c, y


def batches(study, size=60):
    return list(zip(*(tensor.split(size) for tensor in study), strict=True))


def train(model, study):
    model.train()
    for x, c, y in batches(study):
        model(x, confounders=c, labels=y)
    return model


WHERE = ["body.0", "head.0"]
OPTIONS = {"num_confounders": 1, "num_classes": 2}


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (["body.0", "head.0"], ["body.0", "head.0"]),
        (["head.0", "body.0"], ["body.0", "head.0"]),
        (["0"], ["body.0", "head.0"]),
        (r"body\.\d", ["body.0", "body.1", "body.2"]),
        (r"head", ["head"]),
        (lambda name, module: isinstance(module, nn.Conv2d), ["body.0", "body.2"]),
    ],
)
def test_places_by_name_suffix_pattern_and_rule(network, at, expected):
    assert [one.name for one in rmdn.deconfound(network, at=at, **OPTIONS).insertions] == expected


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (["haed.0"], "Near it: head.0"),
        ("body", None),
        ("bdy", "Near it: body"),
        ("(", "not a regular expression"),
        ([], "names no place"),
        (lambda name, module: False, "says yes to none"),
    ],
)
def test_places_that_do_not_exist_are_refused_with_a_hint(network, at, message):
    if message is None:
        assert rmdn.deconfound(network, at=at, **OPTIONS)
        return
    with pytest.raises(PlacementError, match=re.escape(message)):
        rmdn.deconfound(network, at=at, **OPTIONS)


def test_a_place_that_never_reaches_the_output_is_refused_and_leaves_no_trace(network, study):
    x = study[0][:2]
    before = network(x)
    with pytest.raises(PlacementError, match=r"side: .* never reaches"):
        rmdn.deconfound(network, at=["body.0", "side"], sample=x, **OPTIONS)
    assert torch.equal(network(x)["logits"], before["logits"])
    assert not any(module._forward_hooks for module in network.modules())


def test_the_dry_run_shapes_the_layers_and_changes_nothing_else(network, study):
    state = copy.deepcopy(network.state_dict())
    model = rmdn.deconfound(network.train(), at=WHERE, sample=study[0][:2], **OPTIONS)
    assert [tuple(one.layer.beta.shape) for one in model.insertions] == [(3, 3, 6, 6), (3, 8)]
    assert network.training
    assert model.training
    assert all(torch.equal(state[name], value) for name, value in network.state_dict().items())


def test_features_lose_the_confounder_and_keep_the_label(network, study):
    x, c, y = study
    model = rmdn.deconfound(network, at=["body.2"], regularization=0, **OPTIONS)
    seen = {}
    network.body[2].register_forward_hook(lambda module, args, out: seen.update(out=out))
    train(model, study).eval()(x, confounders=c)
    X = torch.cat([y[:, None], c, torch.ones(300, 1)], dim=1).double()
    beta = torch.linalg.lstsq(X, seen["out"].detach().double().flatten(1)).solution
    assert float(beta[1:].abs().max()) < 1e-3
    assert float(beta[0].abs().max()) > 0.05


def test_removal_gives_the_plain_network_back_with_its_own_keys(network, study):
    x = study[0]
    keys, plain = list(network.state_dict()), network(x)["logits"]
    model = train(rmdn.deconfound(network, at=WHERE, **OPTIONS), study)
    assert not torch.allclose(model.eval()(x, confounders=study[1])["logits"], plain)
    removed = model.remove()
    assert removed is network
    assert list(removed.state_dict()) == keys
    assert torch.equal(removed.train()(x)["logits"], plain)


def test_state_dict_into_a_fresh_model_before_any_batch(network, study, tmp_path):
    model = train(rmdn.deconfound(network, at=WHERE, **OPTIONS), study).eval()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    fresh = rmdn.deconfound(Network(), at=WHERE, **OPTIONS).eval()
    fresh.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    x, c, _ = study
    assert torch.equal(model(x, confounders=c)["logits"], fresh(x, confounders=c)["logits"])


def test_frozen_passes_change_no_layer(network, study):
    x, c, y = study
    model = train(rmdn.deconfound(network, at=WHERE, **OPTIONS), study)
    before = copy.deepcopy(model.state_dict())
    with model.frozen():
        frozen = model(x, confounders=c, labels=y)["logits"]
        frozen.sum().backward()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(frozen, model.eval()(x, confounders=c)["logits"])
    model.train()(x, confounders=c, labels=y)
    assert not torch.equal(before["layers.head/0.P"], model.state_dict()["layers.head/0.P"])


def test_a_copy_updates_its_own_layers(network, study):
    x, c, y = study
    model = train(rmdn.deconfound(network, at=WHERE, **OPTIONS), study)
    before = copy.deepcopy(model.state_dict())
    other = copy.deepcopy(model)
    other(x, confounders=c, labels=y)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not torch.equal(other.layers["head/0"].P, model.layers["head/0"].P)
    other.remove()
    assert not any(module._forward_hooks for module in other.network.modules())
    assert all(network.get_submodule(name)._forward_hooks for name in WHERE)


def test_the_network_called_past_its_wrapper_says_so(network, study):
    rmdn.deconfound(network, at=WHERE, **OPTIONS)
    with pytest.raises(UsageError, match=r"model\.remove\(\)"):
        network(study[0])


def test_a_module_called_twice_is_refused_in_training(study):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            return self.layer(self.layer(x))

    model = rmdn.deconfound(Twice(), at=["layer"], **OPTIONS)
    with pytest.raises(UsageError, match="called twice"):
        model(torch.randn(300, 8), confounders=study[1], labels=study[2])


def test_deconfounding_twice_is_refused(network):
    with pytest.raises(UsageError, match="already"):
        rmdn.deconfound(rmdn.deconfound(network, at=WHERE, **OPTIONS), at=WHERE, **OPTIONS)


def test_modules_whose_output_is_no_tensor_are_refused(network, study):
    with pytest.raises(PlacementError, match="gives a dict"):
        rmdn.deconfound(nn.Sequential(network), at=["0"], sample=study[0][:2], **OPTIONS)


def test_description_lists_places_shapes_and_what_goes(network, study, capsys):
    model = rmdn.deconfound(network, at=WHERE, sample=study[0][:2], names=["age"], **OPTIONS)
    model.describe()
    text = capsys.readouterr().out
    for word in ("body.0", "head.0", "3x6x6", "age, ones", "bytes"):
        assert word in text


# Recalibration --------------------------------------------------------------------------------------------------------


def outputs(model, study, names):
    """What comes out of modules before their layers, in evaluation."""
    seen = {}
    handles = [
        model.network.get_submodule(name).register_forward_hook(
            lambda module, args, out, name=name: seen.update({name: out.detach().double()}), prepend=True
        )
        for name in names
    ]
    model.eval()(study[0], confounders=study[1])
    for handle in handles:
        handle.remove()
    return seen


def removed(layer, c):
    return layer.removed_columns(c, len(c)) @ layer.beta.flatten(1)[1:].double()


def distance_from_least_squares(model, study, names):
    _, c, y = study
    X = torch.cat([y[:, None], c, torch.ones(len(c), 1)], dim=1).double()
    worst = 0.0
    for name, z in outputs(model, study, names).items():
        expected = X[:, 1:] @ torch.linalg.lstsq(X, z.flatten(1)).solution[1:]
        worst = max(
            worst,
            float(
                (removed(model.get_submodule(f"layers.{name.replace('.', '/')}"), c) - expected).norm() / expected.norm()
            ),
        )
    return worst


def test_recalibration_is_exact_layer_after_layer(network, study):
    model = train(rmdn.deconfound(network, at=WHERE, **OPTIONS), study)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5)
    assert distance_from_least_squares(model, study, WHERE) > 0.05
    model.train()
    rmdn.recalibrate(model, batches(study, 47))
    assert model.training
    assert distance_from_least_squares(model, study, WHERE) < 1e-5


def test_one_pass_is_exact_for_the_first_layer_and_near_for_the_next(network, study):
    model = train(rmdn.deconfound(network, at=WHERE, regularization=0, **OPTIONS), study)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5)
    rmdn.recalibrate(model, iter(batches(study)), exact=False)
    assert distance_from_least_squares(model, study, WHERE[:1]) < 1e-3
    assert distance_from_least_squares(model, study, WHERE) < 0.2


def test_recalibration_follows_the_forward_order_not_the_order_of_names(study):
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.last, self.first = nn.Linear(8, 2), nn.Linear(64, 8)

        def forward(self, x):
            return self.last(torch.tanh(self.first(x.flatten(1))))

    model = train(rmdn.deconfound(Backwards(), at=["last", "first"], **OPTIONS), study)
    rmdn.recalibrate(model, batches(study))
    assert distance_from_least_squares(model, study, ["last", "first"]) < 1e-5


def test_a_failed_recalibration_leaves_the_model_as_it_was(network, study):
    model = train(rmdn.deconfound(network, at=WHERE, **OPTIONS), study)
    before = copy.deepcopy(model.state_dict())
    spoilt = batches(study)
    spoilt[3] = (spoilt[3][0], spoilt[3][1] * torch.nan, spoilt[3][2])
    for wrong in (spoilt, [], iter(batches(study))):
        with pytest.raises(InputError):
            rmdn.recalibrate(model, wrong)
        assert model.training
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_training_goes_on_after_recalibration(network, study):
    model = train(rmdn.deconfound(network, at=WHERE, gradient="projected", **OPTIONS), study)
    rmdn.recalibrate(model, batches(study))
    train(model, study)
    assert distance_from_least_squares(model, study, WHERE) < 0.05


def test_recalibrate_says_what_it_needs():
    with pytest.raises(UsageError, match="Linear has no R-MDN layers"):
        rmdn.recalibrate(torch.nn.Linear(2, 2), [])
