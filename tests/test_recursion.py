"""The recursion against float64 least squares and against the paper's own form of it."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rmdn import recursion
from rmdn.errors import InputError


def problem(rows=400, p=4, h=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(rows, p, generator=g, dtype=torch.float64)
    X[:, 0] = (X[:, 0] > 0).double()
    X[:, -1] = 1
    Z = X @ torch.randn(p, h, generator=g, dtype=torch.float64) + torch.randn(rows, h, generator=g, dtype=torch.float64)
    return X, Z


def run(X, Z, batches, epsilon=1e3, **options):
    state = recursion.start(X.shape[1], Z.shape[1], epsilon=epsilon)
    for rows in batches:
        state = recursion.update(state, X[rows], Z[rows], **options)
    return state


def consecutive(rows, size):
    return [slice(i, i + size) for i in range(0, rows, size)]


def relative(a, b):
    return float((a - b).norm() / b.norm())


def positive_definite(P):
    return torch.isfinite(P).all() and torch.equal(P, P.mT) and not torch.linalg.cholesky_ex(P).info


@settings(deadline=None, max_examples=40)
@given(cuts=st.lists(st.integers(1, 399), max_size=30), seed=st.integers(0, 10**6))
def test_any_split_in_any_order_gives_least_squares(cuts, seed):
    X, Z = problem(seed=seed)
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
    edges = [0, *sorted(set(cuts)), len(X)]
    state = run(X, Z, [order[a:b] for a, b in pairwise(edges)], epsilon=1e8)
    assert relative(state.beta, torch.linalg.lstsq(X, Z).solution) < 1e-6
    assert positive_definite(state.P)
    assert float(state.rows) == len(X)


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_the_start_acts_as_ridge(size):
    X, Z = problem()
    ridge = torch.linalg.solve(X.mT @ X + torch.eye(4, dtype=torch.float64) / 0.5, X.mT @ Z)
    assert relative(run(X, Z, consecutive(400, size), epsilon=0.5).beta, ridge) < 1e-10


@pytest.mark.parametrize("size", [1, 2, 8, 128])
def test_forgetting_and_lambda_follow_the_papers_form(size):
    forgetting, regularization = 0.99, 1e-3
    X, Z = problem(rows=500 * size, h=2)
    P, beta = torch.eye(4, dtype=torch.float64) * 10, torch.zeros(4, 2, dtype=torch.float64)
    for i in range(500):
        x, z = X[i * size : (i + 1) * size], Z[i * size : (i + 1) * size]
        P = P / forgetting
        K = P @ x.mT @ torch.linalg.inv(torch.eye(size, dtype=torch.float64) + x @ P @ x.mT)
        beta = beta + K @ (z - x @ beta)
        P = P - K @ x @ P + regularization * torch.eye(4, dtype=torch.float64)
    options = {"forgetting": forgetting, "regularization": regularization}
    state = run(X, Z, consecutive(len(X), size), epsilon=10, **options)
    assert relative(state.beta, beta) < 1e-5
    assert relative(state.P, P) < 1e-5


def test_sums_of_several_places_update_like_their_rows():
    X, Z = problem()
    state = run(X, Z, consecutive(400, 100), regularization=1e-4, forgetting=0.9)
    summed = recursion.start(4, 3)
    for rows in consecutive(400, 100):
        parts = [(x.mT @ x, x.mT @ z) for x, z in zip(X[rows].split(30), Z[rows].split(30), strict=True)]
        A, G = (sum(part) for part in zip(*parts, strict=True))
        summed = recursion.update_from_sums(summed, A, G, 100, regularization=1e-4, forgetting=0.9)
    assert relative(summed.beta, state.beta) < 1e-12
    assert relative(summed.P, state.P) < 1e-12


@given(cuts=st.lists(st.integers(1, 399), min_size=1, max_size=6))
@settings(deadline=None, max_examples=25)
def test_merged_shards_equal_one_pass(cuts):
    X, Z = problem()
    edges = [0, *sorted(set(cuts)), len(X)]
    shards = [run(X[a:b], Z[a:b], consecutive(b - a, 7)) for a, b in pairwise(edges)]
    whole, merged = run(X, Z, consecutive(400, 64)), recursion.merge(*shards)
    assert relative(merged.beta, whole.beta) < 1e-9
    assert relative(merged.P, whole.P) < 1e-9
    assert float(merged.rows) == 400


def test_merging_unlike_states_is_refused():
    with pytest.raises(InputError, match=r"\(4, 3\) and \(5, 3\)"):
        recursion.merge(recursion.start(4, 3), recursion.start(5, 3))


@pytest.mark.parametrize("taken", [1, 2, 20, 100])
def test_rows_taken_out_again_leave_no_trace(taken):
    X, Z = problem()
    before = run(X[taken:], Z[taken:], consecutive(400 - taken, 50))
    after = recursion.downdate(recursion.update(before, X[:taken], Z[:taken]), X[:taken], Z[:taken])
    assert relative(after.beta, before.beta) < 1e-9
    assert relative(after.P, before.P) < 1e-9
    assert float(after.rows) == float(before.rows)


def test_rows_that_were_never_seen_cannot_be_taken_out():
    X, Z = problem()
    state = run(X[:10], Z[:10], [slice(0, 10)])
    with pytest.raises(InputError, match="not all in"):
        recursion.downdate(state, 100 * X[:5], Z[:5])
    with pytest.raises(InputError, match="11 rows"):
        recursion.downdate(state, X[:11], Z[:11])


def test_solve_equals_least_squares_and_survives_collinear_columns():
    X, Z = problem()
    assert relative(recursion.solve(X.mT @ X, X.mT @ Z), torch.linalg.lstsq(X, Z).solution) < 1e-9
    double = torch.cat([X, 3 * X[:, 1:2]], dim=1)
    fit = double @ recursion.solve(double.mT @ double, double.mT @ Z)
    assert relative(fit, X @ torch.linalg.lstsq(X, Z).solution) < 1e-8


def test_collinear_columns_are_named():
    X, _ = problem()
    X = torch.cat([X[:, :2], 2 * X[:, :1] - 3 * X[:, 1:2], torch.full((400, 1), 7.0), X[:, 2:]], dim=1)
    found = recursion.collinear(X.mT @ X, ["sex", "age", "mix", "same", "site", "ones"])
    assert [(name, set(sources)) for name, sources in found] == [("mix", {"sex", "age"}), ("same", {"ones"})]
    assert recursion.collinear(*(lambda Y: (Y.mT @ Y,))(problem()[0])) == []


def test_an_empty_batch_changes_nothing():
    X, Z = problem()
    state = run(X, Z, consecutive(400, 50))
    for unchanged in (
        recursion.update(state, X[:0], Z[:0], forgetting=0.5, regularization=1.0),
        recursion.update_from_sums(state, torch.zeros(4, 4), torch.zeros(4, 3), 0, forgetting=0.5),
    ):
        assert all(torch.equal(a, b) for a, b in zip(state, unchanged, strict=True))


@pytest.mark.parametrize("spoil", ["shape", "nan"])
def test_a_batch_that_does_not_fit_is_refused(spoil):
    X, Z = problem()
    if spoil == "nan":
        Z[3, 1] = torch.nan
    with pytest.raises(InputError, match=r"\(B, 4\)" if spoil == "shape" else "NaN"):
        recursion.update(recursion.start(4, 3), X[:, :3] if spoil == "shape" else X, Z)


@pytest.mark.parametrize("size", [1, 2, 3, 64])
@pytest.mark.parametrize("epsilon", [1e3, 1e6])
def test_age_in_days_beside_an_indicator_and_the_ones(size, epsilon):
    X, Z = problem()
    X[:, 1] = 30_000 + 5_000 * X[:, 1]
    state = run(X, Z, consecutive(400, size), epsilon=epsilon)
    exact = torch.linalg.solve(X.mT @ X + torch.eye(4, dtype=torch.float64) / epsilon, X.mT @ Z)
    assert relative(X @ state.beta, X @ exact) < 1e-6
    assert positive_definite(state.P)


@pytest.mark.parametrize("size", [2, 64])
@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_collinear_and_constant_columns_leave_p_finite_and_the_fit_right(size, forgetting):
    X, Z = problem(rows=4000)
    X[:, 1], X[:, 2] = 2 * X[:, 0] - 1, 5.0
    state = run(X, Z, consecutive(4000, size), forgetting=forgetting, regularization=1e-4)
    assert positive_definite(state.P)
    if forgetting == 1:
        plain = run(X, Z, consecutive(4000, size))
        distinct = X[:, [0, 3]]
        assert relative(X @ plain.beta, distinct @ torch.linalg.lstsq(distinct, Z).solution) < 1e-4


def test_sixty_sites_in_batches_of_two():
    g = torch.Generator().manual_seed(0)
    X = torch.nn.functional.one_hot(torch.randint(0, 59, (3000,), generator=g), 60).double()
    X[:, -1] = 1
    Z = torch.randn(3000, 3, generator=g, dtype=torch.float64)
    state = run(X, Z, consecutive(3000, 2), epsilon=1e6)
    assert positive_definite(state.P)
    exact = torch.linalg.solve(X.mT @ X + torch.eye(60, dtype=torch.float64) / 1e6, X.mT @ Z)
    assert relative(X @ state.beta, X @ exact) < 1e-6


def many_updates(count, dtype):
    """`count` batches of 8, the same 1,000 batches over and over, so that the oracle is cheap."""
    X, Z = problem(rows=8000)
    state = recursion.start(4, 3, dtype=dtype)
    definite = True
    for i in range(count):
        rows = slice(8 * (i % 1000), 8 * (i % 1000) + 8)
        P, gain = recursion.absorb_rows(state.P, X[rows])
        state = state._replace(P=P, beta=recursion.advance(state.beta, gain, X[rows], Z[rows].to(dtype)))
        if i % (count // 20) == 0:
            definite &= bool(positive_definite(P))
    return definite, relative(state.beta.double(), torch.linalg.lstsq(X, Z).solution)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_many_updates_stay_right(dtype):
    definite, error = many_updates(10_000, dtype)
    assert definite
    assert error < 1e-4


@pytest.mark.slow
def test_a_million_updates_stay_right():
    definite, error = many_updates(1_000_000, torch.float64)
    assert definite
    assert error < 1e-4


@pytest.mark.slow
def test_a_million_updates_in_float32_lose_no_more_than_rounding():
    definite, error = many_updates(1_000_000, torch.float32)
    assert definite
    assert error < 1e-3  # a million roundings of beta itself


def test_forgetting_without_data_stays_bounded():
    P = torch.eye(3, dtype=torch.float64)
    for _ in range(2000):
        P = recursion.forget(P, 0.9)
    assert P.max() <= 2 * recursion.LARGEST_P
    assert positive_definite(P)
