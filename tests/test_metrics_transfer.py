"""Transfer measures against the paper's equations as loops; the bootstrap against known answers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rmdn.errors import InputError
from rmdn.metrics import transfer, transfer_distances, transfer_intervals

scores = st.floats(0, 1)


@given(
    st.integers(2, 6).flatmap(
        lambda s: st.tuples(arrays(float, (s, s), elements=scores), arrays(float, s, elements=scores))
    )
)
def test_equations(pair):
    R, A = pair
    S = len(R)
    got = transfer_distances(R, A)
    assert got.ACCd == pytest.approx(sum(abs(R[S - 1, i] - A[i]) for i in range(S)) / S)
    backward = (abs(R[S - 1, i] - A[i]) - abs(R[i, i] - A[i]) for i in range(S - 1))
    assert got.BWTd == pytest.approx(sum(backward) / (S - 1))
    assert got.FWTd == pytest.approx(sum(abs(R[i - 1, i] - A[i]) for i in range(1, S)) / (S - 1))
    average, backward, forward = transfer(R)
    assert average == pytest.approx(sum(R[S - 1]) / S)
    assert backward == pytest.approx(sum(R[S - 1, i] - R[i, i] for i in range(S - 1)) / (S - 1))
    assert forward == pytest.approx(sum(R[i - 1, i] for i in range(1, S)) / (S - 1))
    forward = transfer(R, baseline=A).FWT
    assert forward == pytest.approx(sum(R[i - 1, i] - A[i] for i in range(1, S)) / (S - 1))


def test_a_measured_run():
    """The last row of the best run in findings.md against theory: ACCd .023."""
    R = np.full((5, 5), np.nan)
    R[4] = [0.724, 0.685, 0.641, 0.594, 0.538]
    assert transfer_distances(R, [0.75, 0.6875, 0.625, 0.5625, 0.5]).ACCd == pytest.approx(0.023, abs=5e-4)


def test_needed_entries_alone_count():
    R = np.array([[0.9, 0.5, np.nan], [np.nan, 0.8, 0.4], [0.7, 0.7, 0.7]])
    assert transfer(R) == pytest.approx((0.7, -0.15, 0.45))
    R[1, 1] = np.nan
    assert np.isnan(transfer(R).BWT)
    assert transfer(R)[2] == pytest.approx(0.45)


def test_one_stage_has_no_transfer():
    got = transfer_distances(torch.tensor([[0.7]]), 0.8)
    assert got.ACCd == pytest.approx(0.1)
    assert np.isnan(got.BWTd)
    assert np.isnan(got.FWTd)


@pytest.mark.parametrize("R", [np.ones((2, 3)), np.ones(3), np.ones((0, 0))])
def test_a_matrix_must_be_square(R):
    with pytest.raises(InputError, match="S x S"):
        transfer(R)


def test_best_must_fit():
    with pytest.raises(InputError, match="each of the 2 stages"):
        transfer_distances(np.ones((2, 2)), [1, 2, 3])


def outcomes(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return [[rng.random(n) < 0.5 + 0.1 * i for _ in range(3)] for i in range(3)]


def test_intervals_are_around_the_measures_of_the_means():
    rows = outcomes()
    R = np.array([[column.mean() for column in row] for row in rows])
    got = transfer_intervals(rows, best=0.7, baseline=0.5, resamples=500)
    for name, value in {**transfer(R, 0.5)._asdict(), **transfer_distances(R, 0.7)._asdict()}.items():
        assert got[name].value == pytest.approx(value)
    assert got["ACC"].low < got["ACC"].value < got["ACC"].high
    # the mean of 600 independent outcomes: a normal interval is the oracle
    width = 2 * 1.96 * np.sqrt(0.7 * 0.3 / 600)
    assert got["ACC"].high - got["ACC"].low == pytest.approx(width, rel=0.15)


def test_units_widen_the_interval_by_the_design_effect():
    """Ten copies of each row add no information: by subject, the interval is as wide as with one copy."""
    rows = [[np.repeat(column, 10) for column in row] for row in outcomes()]
    subjects = [np.repeat([f"{stage}-{i}" for i in range(200)], 10) for stage in range(3)]

    def width(data, units=None):
        low_high = transfer_intervals(data, units, resamples=800)["ACC"]
        return low_high.high - low_high.low

    assert width(rows, subjects) == pytest.approx(width(outcomes()), rel=0.15)
    assert width(rows) == pytest.approx(width(outcomes()) / np.sqrt(10), rel=0.15)


def test_unevaluated_cells_and_bad_shapes():
    rows = outcomes(20)
    rows[0][2] = None  # never needed
    assert np.isfinite(transfer_intervals(rows, resamples=20)["FWT"].high)
    rows[0][1] = None
    got = transfer_intervals(rows, resamples=20)["FWT"]
    assert np.isnan([got.value, got.low]).all()
    with pytest.raises(InputError, match=r"scores\[1\]\[0\] has 3 rows, expected 20"):
        transfer_intervals([rows[0], [[1, 0, 1], *rows[1][1:]], rows[2]])
    with pytest.raises(InputError, match="every row"):
        transfer_intervals(rows, [[1], [2], [3]])
    with pytest.raises(InputError, match="S lists"):
        transfer_intervals([[1]] * 2)
    with pytest.raises(InputError, match="have no scores"):
        transfer_intervals([[None]])
