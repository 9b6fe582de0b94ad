"""The layer: against float64 least squares, its options, its gradients, its errors, its state."""

import copy
import math
import pickle
import warnings
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rmdn import RMDN
from rmdn.errors import InputError, RMDNWarning, SettingError

EXACT = {"regularization": 0.0, "epsilon": 1e6}


def study(n=600, shape=(6,), classes=2, confounders=2, seed=0):
    """Features that a label and confounders move, age in days among these."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, max(classes or 2, 1), (n,), generator=g)
    if classes is None:
        labels = torch.randn(n, generator=g)
    c = torch.randn(n, confounders, generator=g) + 0.5 * labels[:, None].float()
    z = torch.randn(n, *shape, generator=g)
    for column in (labels.float(), *c.unbind(1)):
        z = z + column.view(-1, *[1] * len(shape)) * torch.randn(shape, generator=g)
    c = c * torch.tensor([5000.0, 1.0, 3.0][:confounders]) + torch.tensor([30000.0, 0.0, -1.0][:confounders])
    return z, c, labels


def batches(size, *tensors):
    return zip(*(tensor.split(size) for tensor in tensors), strict=True)


def oracle(z, c, labels, classes):
    """Residuals by least squares in float64, from nothing of the package."""
    if classes is None:
        y = labels.double()[:, None]
    else:
        y = torch.nn.functional.one_hot(labels, max(classes, 1)).double()[:, 1:] if classes else torch.zeros(len(z), 0)
    X = torch.cat([y, c.double(), torch.ones(len(z), 1, dtype=torch.float64)], dim=1)
    beta = torch.linalg.pinv(X) @ z.double().flatten(1)
    return (z.double().flatten(1) - X[:, y.shape[1] :] @ beta[y.shape[1] :]).view(z.shape)


def trained(layer, z, c, labels, size=50):
    for batch in batches(size, z, c, labels):
        layer(*batch)
    return layer


@pytest.mark.parametrize("shape", [(6,), (3, 4, 5), (2, 3, 4, 2), (7, 5)], ids=["vector", "map", "volume", "tokens"])
@pytest.mark.parametrize("classes", [2, 7, 1, 0, None])
@pytest.mark.parametrize("confounders", [1, 3])
def test_after_training_the_residual_is_that_of_least_squares(shape, classes, confounders):
    z, c, labels = study(shape=shape, classes=classes, confounders=confounders)
    layer = trained(RMDN(confounders, classes, **EXACT), z, c, labels).eval()
    assert torch.allclose(layer(z, c).double(), oracle(z, c, labels, classes), atol=2e-4)


@settings(deadline=None, max_examples=25)
@given(size=st.integers(1, 600), standardize=st.booleans(), seed=st.integers(0, 1000))
def test_neither_batches_nor_standardization_matter_without_lambda(size, standardize, seed):
    z, c, labels = study(seed=seed)
    c[:, 0] /= 1000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RMDNWarning)  # a handful of rows may well be collinear
        layer = trained(RMDN(2, 2, standardize=standardize, **EXACT), z, c, labels, size).eval()
    assert torch.allclose(layer(z, c).double(), oracle(z, c, labels, 2), atol=2e-3 if standardize else 2e-2)


def test_training_residualizes_with_the_new_coefficients():
    z, c, labels = study()
    layer = RMDN(2, 2, **EXACT)
    assert torch.allclose(layer(z, c, labels).double(), oracle(z, c, labels, 2), atol=2e-4)


def test_a_change_of_scale_of_the_confounders_changes_nothing_even_with_lambda():
    z, c, labels = study()
    one = trained(RMDN(2, 2, regularization=1e-3), z, c, labels).eval()
    other = trained(RMDN(2, 2, regularization=1e-3), z, c / 365.25 + 4, labels).eval()
    assert torch.allclose(one(z, c), other(z, c / 365.25 + 4), atol=1e-3)


def test_shared_coefficients_are_those_of_a_regression_over_positions():
    z, c, labels = study(n=200, shape=(3, 4, 5))
    layer = trained(RMDN(2, 2, share="spatial", **EXACT), z, c, labels).eval()
    rows = z.permute(0, 2, 3, 1).reshape(-1, 3)  # each position is a sample of its channel
    expected = oracle(rows, c.repeat_interleave(20, 0), labels.repeat_interleave(20), 2)
    assert torch.allclose(layer(z, c).permute(0, 2, 3, 1).reshape(-1, 3).double(), expected, atol=2e-4)
    larger = torch.randn(2, 3, 9, 11)
    assert layer(larger, c[:2]).shape == larger.shape


def test_shared_coefficients_of_tokens():
    z, c, labels = study(n=200, shape=(7, 5))
    layer = trained(RMDN(2, 2, share="spatial", **EXACT), z, c, labels).eval()
    expected = oracle(z.reshape(-1, 5), c.repeat_interleave(7, 0), labels.repeat_interleave(7), 2)
    assert torch.allclose(layer(z, c).reshape(-1, 5).double(), expected, atol=2e-4)


def test_evaluation_is_pure_and_frozen_training_equals_it():
    z, c, labels = study()
    layer = trained(RMDN(2, 2), z, c, labels)
    before = copy.deepcopy(layer.state_dict())
    with layer.frozen():
        frozen = layer(z, c)
    layer.eval()
    assert torch.equal(layer(z, c), layer(z, c))
    assert torch.equal(frozen, layer(z, c))
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())


def test_an_untrained_layer_lets_features_through():
    z, c, _ = study()
    assert torch.equal(RMDN(2, 2).eval()(z, c), z)


# Gradients ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6,), (3, 4, 5)])
def test_the_constant_gradient_passes_unchanged_and_saves_nothing_large(shape):
    z, c, labels = study(shape=shape)
    z.requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        out = RMDN(2, 2)(z, c, labels)
    weights = torch.randn_like(out)
    (out * weights).sum().backward()
    assert torch.equal(z.grad, weights)
    assert max(saved, default=0) < z.numel()


@pytest.mark.parametrize("gradient", ["constant", "projected"])
@pytest.mark.parametrize("share", [None, "spatial"])
@pytest.mark.parametrize("frozen", [False, True])
def test_evaluation_and_frozen_passes_leave_gradients_unchanged(gradient, share, frozen):
    z, c, labels = study(n=100, shape=(3, 4))
    layer = trained(RMDN(2, 2, gradient=gradient, share=share), z, c, labels).train(frozen)
    leaf = z.clone().requires_grad_()
    with layer.frozen() if frozen else nullcontext():
        out = layer(leaf, c)
    weights = torch.randn_like(out)
    (out * weights).sum().backward()
    assert torch.equal(leaf.grad, weights)


@pytest.mark.parametrize(("shape", "share"), [((6,), None), ((3, 2, 2), None), ((3, 2, 2), "spatial"), ((4, 3), "spatial")])
def test_the_projected_gradient_is_that_of_the_least_squares_residual(shape, share):
    z, c, labels = study(n=3000, shape=shape)
    z.requires_grad_()
    out = RMDN(2, 2, gradient="projected", share=share, **EXACT)(z, c, labels)
    weights = torch.randn_like(out) + c[:, :1].view(-1, *[1] * len(shape)) / 5000
    (got,) = torch.autograd.grad((out * weights).sum(), z)

    exact = z.detach().double().requires_grad_()
    y, ones = labels.double()[:, None], torch.ones(3000, 1, dtype=torch.float64)
    X = torch.cat([y, (c.double() - c.double().mean(0)) / c.double().std(0), ones], dim=1)
    if share:
        channels = exact.flatten(2).mT if len(shape) == 3 else exact  # (B, positions, C)
        X3 = X[:, None].expand(-1, channels.shape[1], -1).reshape(-1, 4)
        beta = torch.linalg.lstsq(X3, channels.reshape(-1, channels.shape[-1])).solution
        removed = (X[:, 1:] @ beta[1:]).view(3000, *([3, 1, 1] if len(shape) == 3 else [1, 3]))
    else:
        removed = (X[:, 1:] @ torch.linalg.lstsq(X, exact.flatten(1)).solution[1:]).view(exact.shape)
    (expected,) = torch.autograd.grad(((exact - removed) * weights).sum(), exact)
    assert torch.allclose(got.double(), expected, atol=2e-4 * float(expected.abs().max()))
    assert not torch.allclose(weights, got, atol=0.1)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_projected_gradient_of_small_batches_is_right_on_average(size):
    """Over an epoch at fixed features, small batches lose the confounders' direction as one large batch does."""
    z, c, labels = study(n=2000)
    weights = torch.randn(2000, 6) + (c[:, :1] - 30000) / 5000
    layer = trained(RMDN(2, 2, gradient="projected"), z, c, labels)
    grads = []
    for batch, w in zip(batches(size, z, c, labels), weights.split(size), strict=True):
        leaf = batch[0].clone().requires_grad_()
        grads.append(torch.autograd.grad((layer(leaf, *batch[1:]) * w).sum(), leaf)[0])
    along = (c[:, 0] - 30000) / 5000
    kept = along @ torch.cat(grads) / (along @ weights)
    assert float(kept.abs().mean()) < 0.1


def test_in_place_gives_the_same_where_autograd_allows_it():
    torch.manual_seed(0)
    x, (_, c, labels) = torch.randn(600, 1, 8, 8), study()
    conv = torch.nn.Conv2d(1, 4, 3)
    results = {}
    for inplace in (False, True):
        for name, before in {"conv": conv, "relu": torch.nn.Sequential(conv, torch.nn.ReLU())}.items():
            conv.zero_grad()
            features = before(x)
            out = RMDN(2, 2, inplace=inplace)(features, c, labels)
            out.square().sum().backward()
            results[name, inplace] = out.detach().clone(), conv.weight.grad.clone()
            if inplace:
                assert (out.data_ptr() == features.data_ptr()) == (name == "conv")
    for name in ("conv", "relu"):
        for a, b in zip(results[name, False], results[name, True], strict=True):
            assert torch.allclose(a, b, atol=1e-4)


def test_in_place_is_noticed_by_whoever_still_needs_the_features():
    features = torch.nn.Conv2d(1, 4, 3)(torch.randn(16, 1, 8, 8))
    squares = features.square().sum()  # its backward pass reads the features
    RMDN(0, 0, inplace=True)(features)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.backward()


def test_lag_is_small_at_rest_and_large_on_the_run():
    z, c, labels = study()
    layer = RMDN(2, 2)
    assert math.isnan(layer.lag)
    at_rest = trained(layer, z.repeat(5, 1), c.repeat(5, 1), labels.repeat(5)).lag
    away = z + (c[:, :1] - 30000) / 5000 * 20
    layer(away[:50], c[:50], labels[:50])
    assert at_rest < 0.02
    assert layer.lag > 3 * at_rest


# Missing values, errors ---------------------------------------------------------------------------------------------


def with_gaps(c):
    c = c.clone()
    c[::7, 0] = torch.nan
    c[3::11, 1] = torch.nan
    return c


def unchanged(layer, call, error=InputError, match=""):
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    with pytest.raises(error, match=match):
        call()
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())


def test_skip_learns_from_whole_rows_alone():
    z, c, labels = study()
    gaps = with_gaps(c)
    whole = ~gaps.isnan().any(1)
    skipping = trained(RMDN(2, 2, missing="skip", **EXACT), z, gaps, labels).eval()
    expected = oracle(z[whole], c[whole], labels[whole], 2)
    assert torch.allclose(skipping(z, gaps)[whole].double(), expected, atol=3e-4)
    assert torch.isfinite(skipping(z, gaps)).all()


@pytest.mark.parametrize("policy", ["mean", "skip"])
def test_missing_confounders_take_the_training_mean(policy):
    z, c, labels = study()
    gaps = with_gaps(c)
    layer = trained(RMDN(2, 2, missing=policy), z, gaps, labels).eval()
    means = gaps[~gaps.isnan().any(1)].mean(0) if policy == "skip" else gaps.nanmean(0)
    filled = means.expand(len(z), -1)
    assert torch.allclose(layer(z), layer(z, filled), atol=1e-2)
    assert torch.allclose(layer(z), layer(z, torch.full_like(c, torch.nan)))


def test_a_missing_confounder_is_named_by_default():
    z, c, labels = study()
    layer = trained(RMDN(2, 2, names=["age", "site"]), z, c, labels)
    gap = c.clone()
    gap[4, 1] = torch.nan
    unchanged(layer, lambda: layer(z, gap, labels), match="'site' is nan in row 4")
    layer.eval()
    unchanged(layer, lambda: layer(z, gap), match="'site' is nan in row 4")
    unchanged(layer, lambda: layer(z), match="missing='mean'")


SPOILT = {
    "infinite confounder": (lambda z, c, y: (z, c.clone().index_fill_(0, torch.tensor([2]), torch.inf), y), "row 2"),
    "nan features": (lambda z, c, y: (z.clone().index_fill_(0, torch.tensor([3]), torch.nan), c, y), "row 3"),
    "other features": (lambda z, c, y: (z[:, :4], c, y), r"\(6,\)"),
    "label too large": (lambda z, c, y: (z, c, y + 1), "from 0 to 1"),
    "negative label": (lambda z, c, y: (z, c, y - 1), "labels hold -1"),
    "fractional label": (lambda z, c, y: (z, c, y * 0.5), "labels hold 0.5"),
    "one-hot labels": (lambda z, c, y: (z, c, torch.nn.functional.one_hot(y)), "one-hot"),
    "no labels": (lambda z, c, y: (z, c, None), "num_classes=0"),
    "no confounders": (lambda z, c, y: (z, None, y), "confounders are missing"),
    "short confounders": (lambda z, c, y: (z, c[:-1], y), r"\(50, 2\)"),
    "too many confounders": (lambda z, c, y: (z, torch.cat([c, c], 1), y), r"\(50, 2\)"),
    "integer features": (lambda z, c, y: (z.long(), c, y), "floating-point"),
    "numpy confounders": (lambda z, c, y: (z, c.numpy(), y), "ndarray"),
}


@pytest.mark.parametrize("kind", SPOILT)
@pytest.mark.parametrize("size", [50, 2])
def test_a_batch_that_does_not_fit_changes_nothing(kind, size):
    z, c, labels = study(n=50 if size == 50 else 4)
    spoil, match = SPOILT[kind]
    layer = trained(RMDN(2, 2), *study(n=50))
    if size == 50:
        unchanged(layer, lambda: layer(*spoil(z, c, labels)), match=match)
    elif kind == "nan features":  # the other form of the update checks in another place
        unchanged(layer, lambda: layer(torch.full((2, 6), torch.nan), c[:2], labels[:2]), match="row 0")


@pytest.mark.parametrize(
    "options",
    [{"epsilon": 0}, {"regularization": -1}, {"forgetting": 1.1}, {"gradient": "none"}, {"share": "all"}, {"names": ["a"]}],
)
def test_options_outside_their_range_are_refused(options):
    with pytest.raises(SettingError, match=next(iter(options)) if options != {"names": ["a"]} else "1 names"):
        RMDN(2, 2, **options)


def test_collinear_columns_are_named_once_and_harmless():
    z, c, labels = study()
    c[:, 1] = 2 * c[:, 0] - 5
    layer = RMDN(2, 2, names=["age", "days"])
    with pytest.warns(RMDNWarning, match="'days' is determined by age") as caught:
        trained(layer, z, c, labels)
    assert len(caught) == 1
    expected = oracle(z, c[:, :1], labels, 2)
    assert torch.isfinite(layer.P).all()
    assert torch.allclose(layer.eval()(z, c).double(), expected, atol=0.2)


def test_a_constant_confounder_is_harmless():
    z, c, labels = study()
    c[:, 1] = 3.0
    layer = trained(RMDN(2, 2, **EXACT), z, c, labels).eval()
    assert torch.allclose(layer(z, c).double(), oracle(z, c[:, :1], labels, 2), atol=3e-4)


def test_an_empty_batch_changes_nothing():
    z, c, labels = study()
    layer = trained(RMDN(2, 2), z, c, labels)
    before = copy.deepcopy(layer.state_dict())
    assert layer(z[:0], c[:0], labels[:0]).shape == (0, 6)
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())


# State ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", ["constant", "projected"])
@pytest.mark.parametrize("way", ["state_dict", "deepcopy", "pickle"])
def test_a_round_trip_trains_on_bit_for_bit(way, gradient, tmp_path):
    z, c, labels = study(shape=(3, 4))
    layer = trained(RMDN(2, 2, gradient=gradient), z[:300], c[:300], labels[:300])
    if way == "state_dict":
        torch.save(layer.state_dict(), tmp_path / "layer.pt")
        other = RMDN(2, 2, gradient=gradient)
        other.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True))
    else:
        other = copy.deepcopy(layer) if way == "deepcopy" else pickle.loads(pickle.dumps(layer))
    for rest in batches(50, z[300:], c[300:], labels[300:]):
        assert torch.equal(layer(*rest), other(*rest))
    assert all(torch.equal(a, b) for a, b in zip(layer.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.parametrize("cast", [torch.nn.Module.half, torch.nn.Module.bfloat16])
def test_a_cast_to_half_precision_spares_the_state(cast):
    z, c, labels = study()
    layer = trained(RMDN(2, 2), z, c, labels)
    before = copy.deepcopy(layer.state_dict())
    cast(layer)
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())
    out = layer(z.bfloat16(), c, labels)
    assert out.dtype == torch.bfloat16
    assert layer.beta.dtype == torch.float32


def test_double_precision_widens_the_coefficients():
    z, c, labels = study()
    layer = trained(RMDN(2, 2, **EXACT).double(), z.double(), c.double(), labels).eval()
    assert layer.beta.dtype == torch.float64
    assert torch.allclose(layer(z.double(), c), oracle(z, c, labels, 2), atol=1e-6)


def test_the_state_is_as_small_as_promised():
    layer = trained(RMDN(1, 2), *study(n=50, shape=(8, 9, 9), confounders=1))
    p, h = 3, 8 * 9 * 9
    rest = sum(buffer.numel() * buffer.element_size() for name, buffer in layer.named_buffers() if name != "beta")
    assert layer.beta.numel() * layer.beta.element_size() == p * h * 4
    assert rest <= 8 * (3 * p * p + 3 * p + 1)
