"""Hinges: what depends on a confounder in bends is taken out too; the knots are the first stage's."""

import numpy as np
import pytest
import torch
from torch import nn

import rmdn
from rmdn.errors import SettingError, UsageError
from rmdn.strategies import Batch, Hinges, StageData

KNOTS = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]], dtype=torch.float64)


def make_batch(rows=400, seed=0, scale=1.0):
    random = torch.Generator().manual_seed(seed)
    c = scale * torch.rand(rows, 2, generator=random) * torch.tensor([4.0, 40.0])
    return Batch(torch.zeros(rows, 1), c, torch.arange(rows) % 2)


def make_data(batch, stage=0):
    return StageData(
        stage,
        len(batch.labels),
        1,
        lambda: (Batch(*rows) for rows in zip(*(p.split(90) for p in batch[:3]), strict=True)),
    )


def with_knots():
    hinges = Hinges(knots=3)
    hinges.at = KNOTS
    return hinges


def test_columns_are_the_confounders_and_their_hinges():
    hinges = with_knots()
    made = hinges.prepare(Batch(torch.zeros(1, 1), torch.tensor([[2.5, 35.0]]), torch.tensor([0]))).confounders
    assert made.tolist() == [[2.5, 35.0, 1.5, 0.5, 0.0, 25.0, 15.0, 5.0]]
    assert made.shape[1] == hinges.columns(2) == 8


def test_knots_are_quantiles_of_the_first_stage_and_stay():
    hinges, first, network = Hinges(knots=3), make_batch(), nn.Linear(1, 1)
    first.confounders[5, 0] = torch.nan
    hinges.begin_stage(network, make_data(first))
    expected = np.nanquantile(first.confounders.double(), [0.25, 0.5, 0.75], axis=0).T
    np.testing.assert_allclose(hinges.at, expected)
    hinges.begin_stage(network, make_data(make_batch(seed=1, scale=9.0), stage=1))
    np.testing.assert_allclose(hinges.at, expected)


def test_knots_are_saved():
    hinges, again, batch = with_knots(), Hinges(knots=3), make_batch()
    again.load_state_dict(hinges.state_dict())
    assert torch.equal(again.prepare(batch).confounders, hinges.prepare(batch).confounders)
    again.begin_stage(nn.Linear(1, 1), make_data(make_batch(seed=1)))
    assert torch.equal(again.at, KNOTS)


@pytest.mark.parametrize("hinged", [False, True])
def test_a_layer_takes_out_bends_with_hinges_and_lines_without(hinged):
    """A feature that follows a confounder in bends, rising and falling, and the label: what is left is the label."""
    hinges = with_knots()

    def rows(seed):
        batch = make_batch(2000, seed)
        bent = np.interp(batch.confounders[:, 0], [0, 1, 2, 3, 4], [0.0, 2.0, -1.0, 5.0, 0.0])
        z = torch.tensor(bent)[:, None].float() + 3.0 * batch.labels[:, None]
        return z, (hinges.prepare(batch) if hinged else batch).confounders, batch.labels

    z, c, labels = rows(0)
    layer = rmdn.RMDN(c.shape[1], 2, regularization=0.0)
    layer(z, c, labels)
    z, c, labels = rows(1)
    left = layer.eval()(z, c)
    spread = torch.stack([left[labels == k].std() for k in (0, 1)])
    assert (spread.max() < 0.02) == hinged
    assert (spread.min() > 1.0) == (not hinged)
    if hinged:
        assert left[labels == 1].mean() - left[labels == 0].mean() == pytest.approx(3.0, abs=0.02)


def test_what_cannot_be():
    with pytest.raises(SettingError, match="knots=0"):
        Hinges(knots=0)
    with pytest.raises(UsageError, match="no knots"):
        Hinges().prepare(make_batch())
