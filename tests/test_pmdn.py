"""P-MDN: the coefficients' descent, what it converges to, gamma and learning rate, gradients, ranks, errors."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

import rmdn
from rmdn import PMDN, strategies
from rmdn.errors import InputError, SettingError
from rmdn.testing.runs import Stage, make_batch, make_settings, train_on, two_linear_layers


def study(n=240, shape=(6,), classes=2, confounders=2, seed=0):
    """Features that labels and confounders move."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % max(classes, 1)
    c = 2 * torch.randn(n, confounders, generator=g) + 0.5 * labels[:, None] + 10
    z = torch.randn(n, *shape, generator=g)
    for column in (labels.float(), *(c - 10).unbind(1)):
        z = z + column.view(-1, *[1] * len(shape)) * torch.randn(shape, generator=g)
    return z, c, labels


def design(c, labels, classes=2):
    """X in float64, the label columns first; from nothing of the package."""
    y = torch.nn.functional.one_hot(labels, max(classes, 1)).double()[:, 1:]
    return torch.cat([y, c.double(), torch.ones(len(c), 1, dtype=torch.float64)], dim=1)


def residual_by_lstsq(z, c, labels, classes=2):
    X = design(c, labels, classes)
    flat = z.double().flatten(1)
    beta = torch.linalg.lstsq(X, flat).solution
    first = X.shape[1] - c.shape[1] - 1
    return (flat - X[:, first:] @ beta[first:]).view(z.shape)


def descended(layer, z, c, labels, steps, size=None):
    for step in range(steps):
        rows = torch.arange(len(z)) if size is None else torch.arange(step * size, (step + 1) * size) % len(z)
        layer(z[rows], c[rows], labels[rows])
    return layer


@pytest.mark.parametrize("shape", [(6,), (3, 4, 5), (7, 5)], ids=["vector", "map", "tokens"])
@pytest.mark.parametrize(("classes", "confounders", "steps"), [(2, 1, 400), (4, 3, 1500), (1, 2, 400), (0, 2, 400)])
def test_on_features_that_stay_the_coefficients_approach_least_squares(shape, classes, confounders, steps):
    z, c, labels = study(shape=shape, classes=classes, confounders=confounders)
    layer = descended(PMDN(confounders, classes, lr=1.0), z, c, labels, steps).eval()
    torch.testing.assert_close(layer(z, c).double(), residual_by_lstsq(z, c, labels, classes), atol=1e-2, rtol=0)


def test_in_small_batches_they_come_near_and_a_smaller_rate_comes_nearer():
    z, c, labels = study()
    expected = residual_by_lstsq(z, c, labels)

    def distance(lr):
        layer = descended(PMDN(2, 2, lr=lr), z, c, labels, 1500, size=16).eval()
        return float((layer(z, c) - expected).square().mean() / (z - expected).square().mean())

    assert distance(0.02) < 0.5 * distance(0.2) < 0.05


def test_a_step_is_the_penaltys_gradient_by_autograd():
    z, c, labels = study(n=20)
    layer = PMDN(2, 2, gamma=0.5, lr=0.02, standardize=False)
    c = (c - 10) / 10
    beta = torch.zeros(4, 6, dtype=torch.float64)
    X = design(c, labels)
    for _ in range(3):
        beta.requires_grad_()
        (0.5 * (z.double() - X @ beta).square().sum() / len(z)).backward()
        beta = (beta - 0.02 * beta.grad).detach()
        out = layer(z, c, labels)
        torch.testing.assert_close(layer.beta.double(), beta, atol=1e-6, rtol=0)
        torch.testing.assert_close(out.double(), z - X[:, 1:] @ beta[1:], atol=1e-5, rtol=0)


@settings(deadline=None, max_examples=20)
@given(gamma=st.floats(0.01, 0.2), lr=st.floats(0.01, 0.2), more=st.floats(0.2, 5.0))
def test_gamma_and_rate_count_by_their_product(gamma, lr, more):
    z, c, labels = study()
    one, other = PMDN(2, 2, gamma=gamma, lr=lr), PMDN(2, 2, gamma=gamma * more, lr=lr / more)
    for layer in (one, other):
        descended(layer, z, c, labels, 4)
    torch.testing.assert_close(one.beta, other.beta)


def test_without_penalty_nothing_is_taken_out():
    z, c, labels = study()
    layer = descended(PMDN(2, 2, gamma=0.0), z, c, labels, 5)
    assert torch.equal(layer(z, c, labels), z)


def test_a_larger_gamma_takes_more_out():
    z, c, labels = study()
    taken = [
        float((z - descended(PMDN(2, 2, gamma=gamma), z, c, labels, 10).eval()(z, c)).square().mean())
        for gamma in (0.0, 0.03, 0.1, 0.3)
    ]
    assert taken == sorted(taken)
    assert taken[1] > 0


@settings(deadline=None, max_examples=10)
@given(size=st.integers(1, 8), scale=st.sampled_from([1e-3, 1.0, 1e3]), gamma=st.sampled_from([1.0, 1e6]))
def test_no_batch_size_scale_or_gamma_makes_it_diverge(size, scale, gamma):
    z, c, labels = study()
    for standardize in (True, False):
        layer = descended(PMDN(2, 2, gamma=gamma, standardize=standardize), z, scale * c, labels, 200, size=size).eval()
        assert float(layer(z, scale * c).square().mean()) < 20 * float(z.square().mean())


def test_a_step_of_any_gamma_comes_closer_to_the_batchs_least_squares():
    z, c, labels = study()
    layer = PMDN(2, 2, gamma=1e9)
    X = design(c, labels)
    for _ in range(10):
        before = penalty(layer, z, X)
        layer(z, c, labels)
        assert penalty(layer, z, X) < before


def penalty(layer, z, X):
    """||z - X beta||^2 with the layer's coefficients, X raw."""
    if not layer.beta.shape[1]:
        return float(z.square().sum())
    return float((z - (X - layer.center) / layer.scale @ layer.beta.double()).square().sum())


def test_the_network_descends_with_the_coefficients_held():
    z, c, labels = study()
    layer = descended(PMDN(2, 2), z, c, labels, 3)
    given = z.clone().requires_grad_()
    layer(given, c, labels).sum().backward()
    assert torch.equal(given.grad, torch.ones_like(z))
    assert not list(layer.parameters())


def test_raw_units_do_not_matter_where_columns_are_standardized():
    z, c, labels = study()
    one = descended(PMDN(2, 2), z, c, labels, 30, size=60).eval()
    far = 365.0 * c + 1000
    other = descended(PMDN(2, 2), z, far, labels, 30, size=60).eval()
    after = [
        float((layer(z, x) - residual_by_lstsq(z, c, labels)).square().mean()) for layer, x in ((one, c), (other, far))
    ]
    assert after[1] == pytest.approx(after[0], rel=0.5)


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing_descends_once(reentrant):
    z, c, labels = study()
    plain, layer = PMDN(2, 2), PMDN(2, 2)
    given = z.clone().requires_grad_()
    for _ in range(3):
        plain(z, c, labels)
        checkpoint(layer, given, c, labels, use_reentrant=reentrant).square().sum().backward()
    assert torch.equal(plain.beta, layer.beta)
    assert torch.equal(plain.moments, layer.moments)


@pytest.mark.parametrize("policy", ["mean", "skip"])
def test_rows_with_missing_confounders(policy):
    z, c, labels = study()
    holes = c.clone()
    holes[::5, 0] = math.nan
    layer = descended(PMDN(2, 2, missing=policy), z, holes, labels, 3)
    assert layer.seen == 3 * (240 if policy == "mean" else 192)
    if policy == "skip":
        whole = torch.arange(240) % 5 != 0
        only = descended(PMDN(2, 2), z[whole], c[whole], labels[whole], 3)
        torch.testing.assert_close(layer.beta, only.beta, atol=1e-4, rtol=0)


def test_an_empty_batch_changes_nothing():
    z, c, labels = study()
    layer = descended(PMDN(2, 2), z, c, labels, 3)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    assert layer(z[:0], c[:0], labels[:0]).shape == (0, 6)
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())


@pytest.mark.parametrize("wrong", [{"gamma": -1.0}, {"gamma": math.nan}, {"lr": 0.0}, {"lr": math.inf}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        PMDN(1, 2, **wrong)


def test_features_that_are_not_finite_are_refused_and_change_nothing():
    z, c, labels = study()
    layer = PMDN(2, 2)
    for _ in range(2):
        before = {name: value.clone() for name, value in layer.state_dict().items()}
        with pytest.raises(InputError, match="row 7"):
            layer(torch.where(torch.arange(240)[:, None] == 7, math.nan, z), c, labels)
        assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())
        layer(z, c, labels)


# In the loop --------------------------------------------------------------------------------------------------------


def stages():
    return [Stage(*(make_batch(2, 1, rows, stage)[:3] for rows in (140, 42))) for stage in range(2)]


class Watching(strategies.PMDN):
    """Keeps each step's share of the layers' learning rate."""

    shares = None

    def step(self, network, batch, optimizer, backward):
        layer = next(iter(strategies.base.unwrapped(network).layers.values()))
        self.shares = [*(self.shares or []), float(layer.decay)]
        return super().step(network, batch, optimizer, backward)


def test_the_coefficients_rate_falls_with_the_networks_and_begins_anew_with_a_stage():
    strategy = Watching()
    places = {"at": ["1"], "num_confounders": 1, "num_classes": 2, "layer": PMDN}
    network = rmdn.deconfound(two_linear_layers(2, 1), **places)
    train_on(stages(), strategy, network, make_settings(epochs=3, schedule="step", decay=0.5, decay_every=1))
    one_stage = [1.0] * 5 + [1.0] + [0.5] * 4 + [0.5] + [0.25] * 4  # a new rate shows from the second step on
    assert strategy.shares == one_stage * 2


def test_the_strategy_refuses_a_network_without_pmdn():
    with pytest.raises(SettingError, match=r"layer=rmdn\.PMDN"):
        train_on(stages(), strategies.PMDN(), two_linear_layers(2, 1), make_settings(epochs=1))
