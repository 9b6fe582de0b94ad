import numpy as np
import pytest
import torch

from rmdn.errors import SettingError
from rmdn.experiments import estimates as module
from rmdn.experiments.estimates import EPSILONS, estimates, picture


@pytest.fixture(scope="module")
def found():
    return estimates()


def test_the_distance_falls_with_samples_for_every_epsilon(found):
    assert found.samples[0] == 10
    assert found.samples[-1] == 10_000
    assert (found.distances[:, -1] < found.distances[:, 0] / 10).all()
    assert (found.distances[:, 10:] < found.distances[:, :-10]).all()


def test_a_larger_epsilon_is_nearer_at_every_size(found):
    assert list(found.epsilons) == sorted(EPSILONS)
    assert (found.distances.diff(dim=0) < 0).all()


def test_distances_are_those_of_ridge_regression_to_lstsq(found):
    """Forgetting 1 and lambda 0: the recursion is ridge regression with the penalty 1 / epsilon."""
    X, Z = (tensor.numpy() for tensor in module._data(10_000, seed=0))
    for column in (0, 20, -1):
        rows = int(found.samples[column])
        x, z = X[:rows], Z[:rows]
        ordinary = np.linalg.lstsq(x, z, rcond=None)[0]
        for epsilon, distances in zip(found.epsilons, found.distances, strict=True):
            ridge = np.linalg.solve(x.T @ x + np.eye(3) / epsilon, x.T @ z)
            assert float(distances[column]) == pytest.approx(np.linalg.norm(ridge - ordinary), rel=1e-4)


def test_a_large_epsilon_ends_at_lstsq():
    assert float(estimates([1e9], samples=500).distances[0, -1]) < 1e-9


def test_the_same_seed_gives_the_same_numbers():
    first, again, other = (estimates(samples=50, seed=seed).distances for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("options", [{"epsilons": []}, {"epsilons": [0.0]}, {"samples": 5}, {"points": 1}])
def test_settings_that_mean_nothing_are_refused(options):
    with pytest.raises(SettingError, match="expected epsilons above 0"):
        estimates(**options)


def test_every_line_of_the_picture_differs_without_colour(found):
    (ax,) = picture(found).axes
    looks = {(line.get_linestyle(), line.get_marker()) for line in ax.lines}
    assert len(looks) == len(ax.lines) == len(EPSILONS)
    for line, distances in zip(ax.lines, found.distances, strict=True):
        assert np.array_equal(line.get_ydata(), distances.numpy())
