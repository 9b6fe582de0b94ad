"""dcor2 against the dcor package and against plain n x n algebra in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rmdn.errors import InputError, RMDNWarning, SettingError
from rmdn.metrics import dcor2, dcor2_interval, dcor2_per_class, dcor2_test
from rmdn.metrics._distances import line_products, line_rows


def distances(x):
    x = np.asarray(x, dtype=np.float64).reshape(len(x), -1)
    return np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))


def u_centred(d):
    n = len(d)
    u = d - d.sum(0) / (n - 2) - d.sum(1)[:, None] / (n - 2) + d.sum() / ((n - 1) * (n - 2))
    np.fill_diagonal(u, 0)
    return u


def plain(x, y):
    a, b = u_centred(distances(x)), u_centred(distances(y))
    return (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())


@pytest.mark.parametrize(("n", "p", "q"), [(4, 1, 1), (5, 2, 1), (65, 1, 1), (600, 84, 1), (513, 9, 12), (300, 1, 20)])
def test_equals_the_dcor_package(n, p, q):
    import dcor

    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, p))
    y = rng.normal(size=(n, q)) + x[:, :1] ** 2
    assert float(dcor2(x, y)) == pytest.approx(dcor.u_distance_correlation_sqr(x, y), abs=1e-8)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(5, 40),
    p=st.sampled_from([1, 2, 9]),
    q=st.sampled_from([1, 3, 10]),
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["normal", "ties", "onehot", "far", "huge", "tiny"]),
)
def test_equals_plain_algebra_on_odd_data(n, p, q, seed, kind):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, p)), rng.normal(size=(n, q))
    if kind == "ties":
        x, y = np.round(x), np.round(y)
    if kind == "onehot":
        x = np.eye(p + 1)[rng.integers(0, p + 1, n)]
    scale, shift = {"far": (1, 1e6), "huge": (1e150, 0), "tiny": (1e-150, 0)}.get(kind, (1, 0))
    x = x * scale + shift
    value = float(dcor2(x, y))
    x = (x - shift) / scale
    if np.isnan(value):  # then and only then nothing but rounding is left of a centred matrix
        assert any((u_centred(distances(side)) ** 2).mean() < 1e-12 for side in (x, y))
    else:
        assert value == pytest.approx(plain(x, y), abs=1e-8)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 70), seed=st.integers(0, 10**6), decimals=st.integers(0, 3))
def test_line_sums_equal_the_full_matrices(n, seed, decimals):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=n).round(decimals), rng.normal(size=(3, n)).round(decimals)
    expected = [(distances(x) * distances(row)).sum() for row in y]
    np.testing.assert_allclose(line_products(torch.tensor(x), torch.tensor(y)), expected, atol=1e-9)
    np.testing.assert_allclose(line_rows(torch.tensor(x)), distances(x).sum(1), atol=1e-10)


def test_invariant_under_shift_scale_rotation_and_order():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(80, 12, generator=generator, dtype=torch.float64)
    y = x[:, :2].abs() + torch.randn(80, 2, generator=generator, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(12, 12, generator=generator, dtype=torch.float64)).Q
    order = torch.randperm(80, generator=generator)
    expected = dcor2(x, y)
    torch.testing.assert_close(dcor2((3 * x @ rotation + 7)[order], y[order] * 0.01), expected, atol=1e-10, rtol=0)
    torch.testing.assert_close(dcor2(y, x), expected, atol=1e-12, rtol=0)


def test_perfect_and_absent_dependence():
    x = np.random.default_rng(1).normal(size=(400, 3))
    assert float(dcor2(x, 2 * x + 1)) == pytest.approx(1)
    values = [float(dcor2(*np.random.default_rng(s).normal(size=(2, 50)))) for s in range(300)]
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(300)  # unbiased at zero
    assert min(values) < 0  # and so not clipped


@pytest.mark.parametrize(("p", "q"), [(1, 1), (3, 2), (10, 1)])
def test_gradient(p, q):
    generator = torch.Generator().manual_seed(p)
    x = torch.randn(12, p, generator=generator, dtype=torch.float64, requires_grad=True)
    y = torch.randn(12, q, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(dcor2, (x, y))


def test_gradient_across_tiles_and_in_single_precision():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 10, generator=generator)
    y = x[:, :1] ** 2 + torch.randn(600, 1, generator=generator)
    x.requires_grad_()
    dcor2(x, y).backward()
    d = x.double().detach().requires_grad_()
    a = torch.linalg.vector_norm(d[:, None] - d[None] + torch.eye(600)[..., None] * 1e-30, dim=-1)
    b = (y.double() - y.double().T).abs()

    def centred(m):
        n = len(m)
        m = m - m.sum(0) / (n - 2) - m.sum(1)[:, None] / (n - 2) + m.sum() / ((n - 1) * (n - 2))
        return m * (1 - torch.eye(n))

    a, b = centred(a), centred(b)
    ((a * b).sum() / ((a * a).sum() * (b * b).sum()).sqrt()).backward()
    torch.testing.assert_close(x.grad.double(), d.grad, atol=1e-8, rtol=1e-5)


def test_duplicates_have_a_finite_gradient():
    x = torch.randn(10, 9, generator=torch.Generator().manual_seed(0)).repeat(2, 1).requires_grad_()
    dcor2(x, torch.arange(20.0)).backward()
    assert torch.isfinite(x.grad).all()


def test_what_does_not_exist_is_nan():
    y = np.arange(10.0)
    assert np.isnan(float(dcor2(np.full(10, 0.1), y)))
    assert np.isnan(float(dcor2(np.full((10, 20), 0.1), y)))
    assert np.isnan(float(dcor2(np.eye(10), y)))  # all points equally far apart
    assert np.isnan(float(dcor2(y, np.full(10, 3))))


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ([1.0, 2, 3], [1.0, 2, 3], "at least 4"),
        ([], [], "at least 4"),
        ([1.0, 2, 3, 4], [1.0, 2, 3], "3 rows, expected 4"),
        ([1.0, 2, float("nan"), 4], [1.0, 2, 3, 4], "row 2, column 0"),
        ([1.0, 2, 3, 4], [1.0, 2, 3, float("inf")], "y has 1 NaN or infinite"),
        (["a", "b", "c", "d"], [1.0, 2, 3, 4], "must be numbers"),
        (np.ones((4, 0)), [1.0, 2, 3, 4], "no columns"),
        (3.0, [1.0], "one row a sample"),
    ],
)
def test_bad_input_is_named(x, y, words):
    with pytest.raises(InputError, match=words):
        dcor2(x, y)


def test_feature_maps_and_integers():
    x = torch.randn(20, 2, 3, 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(20)
    assert float(dcor2(x, y)) == float(dcor2(x.reshape(20, -1).double(), y.double()))


def test_per_class_is_the_mean_over_classes():
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b"], [30, 50])
    x, y = rng.normal(size=(80, 3)), rng.normal(size=80)
    result = dcor2_per_class(x, y, labels)
    assert float(result.classes["b"]) == pytest.approx(plain(x[30:], y[30:]))
    assert float(result.mean) == pytest.approx((plain(x[:30], y[:30]) + plain(x[30:], y[30:])) / 2)


def test_per_class_with_a_class_of_one():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(21, 3)), rng.normal(size=21)
    with pytest.warns(RMDNWarning, match=r"\[9\]"):
        result = dcor2_per_class(x, y, [0] * 20 + [9])
    assert np.isnan(float(result.classes[9]))
    assert float(result.mean) == pytest.approx(plain(x[:20], y[:20]))
    with pytest.warns(RMDNWarning):
        assert np.isnan(float(dcor2_per_class(x, y, np.arange(21)).mean))


@pytest.mark.parametrize(("p", "q"), [(1, 1), (3, 1), (1, 12), (10, 9)])
def test_permuted_statistics_are_those_of_permuted_data(p, q):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, p)), rng.normal(size=(30, q))
    result = dcor2_test(x, y, permutations=8, seed=3)
    from rmdn.metrics.resampling import Permutations

    draws, generator = Permutations(30), np.random.default_rng(3)
    for null in result.null:
        taken = draws.draw(generator)
        expected = plain(x, y[taken]) if q <= p else plain(x[taken], y)
        assert null == pytest.approx(expected, abs=1e-10)
    assert result.value == pytest.approx(plain(x, y))


def test_permutation_test_has_size_and_power():
    p_values = [
        dcor2_test(*np.random.default_rng(s).normal(size=(2, 30)), permutations=19, seed=s).p_value for s in range(200)
    ]
    rejected = np.mean(np.array(p_values) <= 0.1)  # exact at multiples of 1/20; 0.1 +- 4 standard errors
    assert abs(rejected - 0.1) < 4 * np.sqrt(0.1 * 0.9 / 200)
    x = np.random.default_rng(0).normal(size=100)
    assert dcor2_test(x, x**2, permutations=99).p_value == 0.01


def test_units_protect_against_repeated_rows():
    """Each subject's rows are alike: free permutations see dependence that is not there."""
    free, whole = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(2, 12)).repeat(5, axis=1) + 0.05 * rng.normal(size=(2, 60))
        subject = np.repeat(np.arange(12), 5)
        free.append(dcor2_test(x, y, permutations=39).p_value)
        whole.append(dcor2_test(x, y, units=subject, permutations=39).p_value)
    assert np.mean(np.array(free) <= 0.05) > 0.4
    assert np.mean(np.array(whole) <= 0.05) <= 0.2


def test_within_removes_what_the_site_explains():
    rng = np.random.default_rng(0)
    site = np.repeat(["a", "b", "c"], 30)
    shift = np.repeat([0.0, 5, 10], 30)
    x, y = rng.normal(size=90) + shift, rng.normal(size=90) + shift
    assert dcor2_test(x, y, permutations=99).p_value == 0.01
    assert dcor2_test(x, y, within=site, permutations=99).p_value > 0.05


def test_impossible_exchanges_are_errors():
    x = np.arange(6.0)
    with pytest.raises(InputError, match="Nothing can be exchanged"):
        dcor2_test(x, x, units=[0, 1, 1, 2, 2, 2])
    with pytest.raises(InputError, match="several levels"):
        dcor2_test(x, x, units=[0, 0, 1, 1, 2, 2], within=[0, 1, 0, 0, 0, 0])
    with pytest.raises(SettingError, match="permutations"):
        dcor2_test(x, x, permutations=0)
    with pytest.raises(InputError, match="missing entries"):
        dcor2_test(x, x, units=["a", None, "b", "b", "c", "c"])
    assert np.isnan(dcor2_test(np.ones(6), x, permutations=3).p_value)


@pytest.mark.parametrize("units", [None, np.arange(30)[::-1], np.arange(30) // 4])
def test_jackknife_leaves_units_out(units):
    from scipy import stats

    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3))
    y = x[:, 0] + rng.normal(size=30)
    codes = np.arange(30) if units is None else units
    left_out = np.array([plain(x[codes != u], y[codes != u]) for u in np.unique(codes)])
    k = len(left_out)
    error = np.sqrt((k - 1) / k * ((left_out - left_out.mean()) ** 2).sum())
    value, low, high = dcor2_interval(x, y, units=units)
    assert value == pytest.approx(plain(x, y))
    assert high - value == pytest.approx(stats.t.ppf(0.975, k - 1) * error)
    assert value - low == pytest.approx(high - value)


def test_interval_covers():
    truth = float(dcor2(*_pair(20_000, 0)))
    inside = [low <= truth <= high for _, low, high in (dcor2_interval(*_pair(60, s)) for s in range(1, 151))]
    assert np.mean(inside) > 0.88


def test_interval_without_a_value():
    x = np.arange(6.0)
    assert np.isnan(dcor2_interval(np.ones(6), x).low)
    assert np.isnan(dcor2_interval(x, x**2, units=[0, 0, 0, 1, 1, 1]).low)  # three rows left
    with pytest.raises(InputError, match="two units"):
        dcor2_interval(x, x, units=[0] * 6)
    with pytest.raises(SettingError, match="confidence"):
        dcor2_interval(x, x**2, confidence=95)


def _pair(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return x, x + rng.normal(size=n)


def test_columns_of_a_table_are_taken_as_they_come():
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.normal(size=30), "score": rng.normal(size=30), "site": ["a", "b", "c"] * 10})
    table = table.sort_values("age")
    age, score = table["age"].to_numpy(), table["score"].to_numpy()
    value = dcor2(table[["age", "score"]], table["score"])  # read-only, an index out of order
    assert float(value) == pytest.approx(plain(np.c_[age, score], score))
    assert float(dcor2(age[::-1], score[::-1])) == pytest.approx(plain(age, score))
    assert 0 < dcor2_test(table["age"], table["score"], within=table["site"], permutations=9).p_value <= 1
    table["site"] = table["site"].where(table["age"] > 0)
    with pytest.raises(InputError, match="missing entries"):
        dcor2_test(table["age"], table["score"], within=table["site"])
    with pytest.raises(InputError, match="must be numbers"):
        dcor2(table[["age", "site"]], table["score"])


@pytest.mark.parametrize("far", [1e2, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("p", [1, 3, 20])
def test_one_point_far_away_does_not_drown_the_others(p, far):
    """Centring takes a far point's distance out again, so the others still decide."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, p))
    y = x[:, 0] ** 2 + 0.1 * rng.normal(size=60)
    x[7] = far
    assert float(dcor2(x, y)) == pytest.approx(plain(x, y), abs=1e-6 if far > 1e6 else 1e-8)
    if far > 1e5:  # no number rather than a wrong one
        assert np.isnan(dcor2_test(x, y, permutations=3).p_value)
        assert np.isnan(dcor2_interval(x, y).low)
    both = y.copy()
    both[3] = -far
    assert float(dcor2(x, both)) == pytest.approx(plain(x, both), abs=1e-6 if far > 1e6 else 1e-8)
