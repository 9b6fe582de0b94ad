"""MDN: least squares at full batch with its gradient, small batches, momentum, stages, errors."""

import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import rmdn
from rmdn import MDN, strategies
from rmdn.errors import InputError, RMDNWarning, SettingError, UsageError
from rmdn.testing.runs import Stage, make_batch, make_settings, train_on, two_linear_layers


def study(n=120, shape=(6,), classes=2, confounders=2, seed=0):
    """Features that labels and confounders move."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randn(n, generator=g) if classes is None else torch.arange(n) % max(classes, 1)
    c = 2 * torch.randn(n, confounders, generator=g) + 0.5 * labels[:, None] + 10
    z = torch.randn(n, *shape, generator=g)
    for column in (labels.float(), *(c - 10).unbind(1)):
        z = z + column.view(-1, *[1] * len(shape)) * torch.randn(shape, generator=g)
    return z, c, labels


def design(c, labels, classes):
    """X in float64, the label columns first, and how many these are; from nothing of the package."""
    if classes is None:
        y = labels.double()[:, None]
    else:
        y = nn.functional.one_hot(labels, max(classes, 1)).double()[:, 1:] if classes else torch.zeros(len(c), 0)
    return torch.cat([y, c.double(), torch.ones(len(c), 1, dtype=torch.float64)], dim=1), y.shape[1]


def residual_by_lstsq(z, c, labels, classes):
    """Through an explicit lstsq in float64, with gradients."""
    X, first = design(c, labels, classes)
    flat = z.double().flatten(1)
    beta = torch.linalg.lstsq(X, flat).solution
    return (flat - X[:, first:] @ beta[first:]).view(z.shape)


def knowing(c, labels, classes=2, **options):
    layer = MDN(c.shape[1], classes, **options)
    layer.set_gram(c, labels)
    return layer


@pytest.mark.parametrize("shape", [(6,), (3, 4, 5), (7, 5)], ids=["vector", "map", "tokens"])
@pytest.mark.parametrize("classes", [2, 7, 1, 0, None])
@pytest.mark.parametrize("confounders", [1, 3])
def test_at_full_batch_the_residual_and_its_gradient_are_those_of_least_squares(shape, classes, confounders):
    z, c, labels = study(shape=shape, classes=classes, confounders=confounders)
    ours, theirs = z.double().requires_grad_(), z.double().requires_grad_()
    weights = torch.randn(z.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    residual = knowing(c, labels, classes)(ours, c, labels)
    expected = residual_by_lstsq(theirs, c, labels, classes)
    torch.testing.assert_close(residual, expected, rtol=0, atol=1e-9)
    (weights * residual.square()).sum().backward()
    (weights * expected.square()).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-8)


def test_single_precision_is_near_it():
    z, c, labels = study()
    torch.testing.assert_close(
        knowing(c, labels)(z, c, labels).double(), residual_by_lstsq(z, c, labels, 2), atol=1e-4, rtol=0
    )


@settings(deadline=None, max_examples=20)
@given(size=st.integers(1, 120), standardize=st.booleans(), seed=st.integers(0, 1000))
def test_a_batch_gives_the_papers_estimate(size, standardize, seed):
    """N (X'X)^-1 x'z / B: X'X of all rows, x'z of the batch's."""
    z, c, labels = study(seed=seed)
    X, first = design(c, labels, 2)
    some = torch.randperm(len(z), generator=torch.Generator().manual_seed(seed))[:size]
    beta = len(z) / size * torch.linalg.inv(X.mT @ X) @ X[some].mT @ z[some].double()
    expected = z[some].double() - X[some][:, first:] @ beta[first:]
    residual = knowing(c, labels, standardize=standardize)(z[some].double(), c[some], labels[some])
    torch.testing.assert_close(residual, expected, rtol=1e-6, atol=1e-6)


def test_batches_estimates_average_to_least_squares():
    z, c, labels = study(n=240)
    layer = knowing(c, labels, momentum=0.0)
    betas = []
    for rows in torch.arange(240).split(24):
        layer(z[rows], c[rows], labels[rows])
        betas.append(layer.beta.clone())
    layer(z, c, labels)
    torch.testing.assert_close(torch.stack(betas).mean(0), layer.beta, atol=1e-4, rtol=0)


def test_the_running_average_has_the_weights_of_its_momentum():
    z, c, labels = study()
    once, layer = knowing(c, labels, momentum=0.0), knowing(c, labels, momentum=0.7)
    betas = []
    for rows in torch.arange(120).split(30):
        for one in (once, layer):
            one(z[rows], c[rows], labels[rows])
        betas.append(once.beta)
    weights = torch.tensor([0.7**k for k in reversed(range(4))])
    expected = (weights[:, None, None] * torch.stack(betas)).sum(0) / weights.sum()
    torch.testing.assert_close(layer.beta, expected)
    assert not torch.allclose(layer.beta, betas[-1], atol=1e-3)


def test_evaluation_uses_the_running_average_and_no_labels():
    z, c, labels = study()
    layer = knowing(c, labels)
    for _ in range(3):
        layer(z, c, labels)
    torch.testing.assert_close(layer.eval()(z, c).double(), residual_by_lstsq(z, c, labels, 2), atol=1e-4, rtol=0)


def test_shared_coefficients_are_those_of_a_channels_mean():
    z, c, labels = study(shape=(4, 5, 5))
    layer = knowing(c, labels, share="spatial")
    taken = z - layer(z, c, labels)
    means = z.mean((2, 3))
    expected = means.double() - residual_by_lstsq(means, c, labels, 2)
    torch.testing.assert_close(taken.double(), expected[:, :, None, None].expand_as(z), atol=1e-4, rtol=0)


def test_a_new_gram_matrix_moves_coordinates_not_the_residual():
    z, c, labels = study()
    layer = knowing(c, labels)
    layer(z, c, labels)
    before = layer.eval()(z, c)
    layer.set_gram(3 * c[:50] - 7, labels[:50])
    torch.testing.assert_close(layer(z, c), before, atol=1e-3, rtol=0)


@pytest.mark.parametrize("policy", ["mean", "skip"])
def test_missing_confounders(policy):
    z, c, labels = study()
    holes = c.clone()
    holes[::5, 0] = math.nan
    layer = knowing(holes, labels, missing=policy)
    assert layer.seen == (120 if policy == "mean" else 96)
    out = layer(z.double(), holes, labels)
    whole = torch.arange(120) % 5 != 0
    if policy == "skip":
        expected = residual_by_lstsq(z[whole], c[whole], labels[whole], 2)
    else:
        filled = torch.where(holes.isnan(), holes.nanmean(0), holes)
        expected = residual_by_lstsq(z, filled, labels, 2)[whole]
    torch.testing.assert_close(out[whole], expected, atol=1e-6, rtol=0)


def test_a_batch_without_complete_rows_changes_nothing():
    z, c, labels = study()
    layer = knowing(c, labels, missing="skip")
    layer(z, c, labels)
    before = layer.beta.clone()
    out = layer(z[:4], torch.full((4, 2), math.nan), labels[:4])
    assert torch.equal(layer.beta, before)
    assert torch.isfinite(out).all()
    assert layer(z[:0], c[:0], labels[:0]).shape == (0, 6)


def test_collinear_columns_are_named_and_the_residual_stays_right():
    z, c, labels = study(confounders=2)
    twice = torch.cat([c, c[:, :1] - 3], dim=1)
    with pytest.warns(RMDNWarning, match="confounder 2"):
        layer = knowing(twice, labels)
    torch.testing.assert_close(layer(z.double(), twice, labels), residual_by_lstsq(z, c, labels, 2), rtol=0, atol=1e-6)


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing_averages_once_and_keeps_gradients(reentrant):
    z, c, labels = study()
    plain, layer = knowing(c, labels), knowing(c, labels)
    grads = []
    for one in (plain, layer):
        given = z.clone().requires_grad_()
        for _ in range(2):
            called = checkpoint if one is layer else lambda f, *args, use_reentrant: f(*args)
            out = called(one, given, c, labels, use_reentrant=reentrant)
            out.square().sum().backward()
        grads.append(given.grad)
    torch.testing.assert_close(*grads)
    assert torch.equal(plain.weight, layer.weight)
    assert torch.equal(plain.beta, layer.beta)


def test_autocast_does_not_reach_the_regression():
    z, c, labels = study()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = knowing(c, labels)(z, c, labels)
    assert torch.equal(out, knowing(c, labels)(z, c, labels))


@pytest.mark.parametrize("momentum", [-0.1, 1.0, math.nan])
def test_a_wrong_momentum_is_refused(momentum):
    with pytest.raises(SettingError, match="momentum"):
        MDN(1, 2, momentum=momentum)


def test_training_without_the_gram_matrix_says_what_to_do():
    z, c, labels = study()
    with pytest.raises(UsageError, match="set_gram"):
        MDN(2, 2)(z, c, labels)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, y: (c, None), "labels are missing"),
        (lambda c, y: (c[:, :1], y), "expected"),
        (lambda c, y: (c, y + 1), "whole numbers"),
        (lambda c, y: (torch.where(c > 12, math.nan, c), y), "confounder"),
        (lambda c, y: (torch.where(c > 12, math.inf, c), y), "inf"),
        (lambda c, y: (c[:0], y[:0]), "complete"),
    ],
)
def test_a_wrong_training_set_is_refused_and_changes_nothing(change, message):
    _, c, labels = study()
    layer = knowing(c, labels)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    with pytest.raises(InputError, match=message):
        layer.set_gram(*change(c, labels))
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())


# In the loop --------------------------------------------------------------------------------------------------------


def stages():
    return [Stage(*(make_batch(2, 1, rows, stage)[:3] for rows in (140, 42))) for stage in range(2)]


def network_with_mdn(**options):
    return rmdn.deconfound(two_linear_layers(2, 1), ["1"], num_confounders=1, num_classes=2, layer=MDN, **options)


class Watching(strategies.MDN):
    """Keeps the Gram matrices that a layer has at the start of each stage, in raw coordinates."""

    def begin_stage(self, network, data):
        super().begin_stage(network, data)
        layer = next(iter(network.layers.values()))
        raw = torch.diag(layer.scale)
        raw[-1] += layer.center
        self.grams = [*getattr(self, "grams", []), raw.mT @ layer.moments @ raw]


def test_the_strategy_gives_each_stage_its_own_gram_matrix():
    strategy, given = Watching(), stages()
    train_on(given, strategy, network_with_mdn(), make_settings(epochs=1))
    for gram, stage in zip(strategy.grams, given, strict=True):
        _, c, labels = stage.train
        X, _ = design(c, labels, 2)
        torch.testing.assert_close(gram, X.mT @ X)


def test_the_strategy_refuses_a_network_without_mdn():
    with pytest.raises(SettingError, match=r"layer=rmdn\.MDN"):
        train_on(stages(), strategies.MDN(), two_linear_layers(2, 1), make_settings(epochs=1))


def test_no_warning_in_the_loop():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RMDNWarning)
        train_on(stages(), strategies.MDN(), network_with_mdn(), make_settings(epochs=1))
