import itertools
import sys

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import integrate, stats
from torch.utils.data import DataLoader, TensorDataset

from rmdn.data import synthetic
from rmdn.errors import MissingExtraError, SettingError

GENERATORS = {
    "static": lambda **options: [synthetic.static(**options)],
    "continual 1": lambda **options: synthetic.continual(1, **options),
    "continual 2": lambda **options: synthetic.continual(2, **options),
    "continual 3": lambda **options: synthetic.continual(3, **options),
    "moving": synthetic.moving,
}
BEST = {
    "static": [5 / 6],
    "continual 1": [0.75] * 5,
    "continual 2": [0.75, 0.6875, 0.625, 0.5625, 0.5],
    "continual 3": [0.75, 0.6875, 0.625, 0.5625, 0.5],
    "moving": [0.75] * 4,
}
MAIN_CELLS = {2: [(0, 0), (1, 1)], 4: [(0, 0), (3, 3)]}


def oracle_kernel(size):
    """The kernel of BR-Net's and MDN's data, from scipy's normal distribution."""
    bounds = np.linspace(-5.5, 5.5, size + 1)
    mass = np.diff(stats.norm.cdf(bounds))
    kernel = np.sqrt(mass[:, None] * mass[None, :])
    return kernel / kernel.sum()


def oracle_templates(grid, confounder):
    cell = 32 // grid
    main, other = np.zeros((32, 32)), np.zeros((32, 32))
    for image, cells in ((main, MAIN_CELLS[grid]), (other, [confounder])):
        for row, column in cells:
            image[row * cell : (row + 1) * cell, column * cell : (column + 1) * cell] = oracle_kernel(cell)
    return np.stack([main.ravel(), other.ravel()])  # (2, pixels)


def where(name, stage):
    """(grid, cell of the confounder) in a stage, counted from 0."""
    return (4, (3 - stage, stage)) if name == "moving" else (2, (1, 0))


def densities(values, ranges):
    return np.stack([stats.uniform(low, high - low).pdf(values) for low, high in ranges])


def accuracy(likelihoods, labels):
    """Of the classifier that takes the likelier group, and half a point where both are as likely."""
    first, second = likelihoods
    right = np.where(labels == 1, second > first, first > second)
    return float(np.mean(np.where(first == second, 0.5, right)))


@pytest.mark.parametrize("name", GENERATORS)
def test_theory(name):
    stages = GENERATORS[name](per_group=1)
    assert [stage.best for stage in stages] == pytest.approx(BEST[name], abs=1e-12)
    assert all(stage.train.best == stage.test.best == stage.best for stage in stages)


bounds = st.floats(-20, 20, allow_subnormal=False)


@given(bounds, bounds, bounds, bounds)
def test_overlap_is_the_integral_of_the_smaller_density(a, b, c, d):
    first, second = (min(a, b), max(a, b)), (min(c, d), max(c, d))
    assume(first[1] - first[0] > 0.01 and second[1] - second[0] > 0.01)
    knots = sorted([*first, *second])
    expected = sum(
        integrate.fixed_quad(lambda x: densities(x, (first, second)).min(0), low, high, n=3)[0]
        for low, high in itertools.pairwise(knots)
    )
    assert synthetic.overlap(first, second) == pytest.approx(expected, abs=1e-9)
    assert synthetic.overlap(second, first) == synthetic.overlap(first, second)


@pytest.mark.parametrize("wrong", [(2.0, 2.0), (3.0, 1.0), (0.0, float("inf")), (float("nan"), 1.0)])
def test_overlap_refuses_what_is_no_range(wrong):
    with pytest.raises(SettingError, match="low < high"):
        synthetic.overlap((0.0, 1.0), wrong)


@pytest.mark.parametrize("name", ["static", "continual 3", "moving"])
def test_bayes_classifier_reaches_theory_on_the_images_and_the_confounder_leads_beyond_it(name):
    for k, stage in enumerate(GENERATORS[name](per_group=2048, seed=3)):
        test = stage.test
        pixels, labels = test.images.flatten(1).double().numpy(), test.labels.numpy()
        estimates = np.linalg.lstsq(oracle_templates(*where(name, k)).T, pixels.T, rcond=None)[0]  # (2, N)
        main = densities(estimates[0], test.main_ranges)
        both = main * densities(estimates[1], test.confounder_ranges)
        error = np.sqrt(0.25 / len(test))
        assert accuracy(main, labels) == pytest.approx(stage.best, abs=3 * error)
        assert accuracy(both, labels) > stage.best + 3 * error


@pytest.mark.parametrize("name", GENERATORS)
def test_images_are_kernels_and_noise(name):
    for k, stage in enumerate(GENERATORS[name](per_group=64, seed=1)):
        for samples in (stage.train, stage.test):
            strengths = torch.stack([samples.main_effect, samples.confounders[:, 0]], 1).double().numpy()
            noise = samples.images.flatten(1).double().numpy() - strengths @ oracle_templates(*where(name, k))
            assert noise.std() == pytest.approx(0.01, rel=0.02)
            assert abs(noise.mean()) < 4 * 0.01 / np.sqrt(noise.size)
            assert stats.kstest(noise[:40].ravel() / 0.01, "norm").pvalue > 1e-4


@pytest.mark.parametrize("name", GENERATORS)
def test_strengths_are_uniform_in_their_ranges_and_unrelated_within_a_group(name):
    for stage in GENERATORS[name](per_group=400, seed=2):
        samples = stage.train
        for group in (0, 1):
            rows = samples.labels == group
            main, confounder = samples.main_effect[rows], samples.confounders[rows, 0]
            for values, (low, high) in (
                (main, samples.main_ranges[group]),
                (confounder, samples.confounder_ranges[group]),
            ):
                assert stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue > 1e-4
            assert stats.spearmanr(main, confounder).pvalue > 1e-4


def test_ranges_are_the_papers():
    first = ((3, 5), (4, 6))
    confounder, main = synthetic.continual(1, 1), synthetic.continual(2, 1)
    both, moving = synthetic.continual(3, 1), synthetic.moving(1)
    for stages in (confounder, main, both, moving):
        assert stages[0].train.main_ranges == stages[0].train.confounder_ranges == first
    assert confounder[4].train.confounder_ranges == both[4].train.confounder_ranges == ((2.5, 4.5), (4.5, 6.5))
    assert main[4].train.main_ranges == both[4].train.main_ranges == ((3.5, 5.5), (3.5, 5.5))
    assert confounder[4].train.main_ranges == main[4].train.confounder_ranges == first
    assert moving[3].train.confounder_ranges == first
    assert synthetic.moving(1, shift=0.5)[2].test.confounder_ranges == ((2, 4), (5, 7))


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.tensors(), b.tensors(), strict=True))


@pytest.mark.parametrize("name", GENERATORS)
def test_a_seed_decides_everything_and_nothing_else_does(name):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    stages = GENERATORS[name](per_group=4, seed=5)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(7)
    for a, b, c in zip(stages, GENERATORS[name](per_group=4, seed=5), GENERATORS[name](per_group=4, seed=6), strict=True):
        assert same(a.train, b.train)
        assert same(a.test, b.test)
        assert not torch.equal(a.train.images, c.train.images)
        assert not torch.equal(a.train.main_effect, a.test.main_effect)


def test_draws_are_fresh_in_each_stage_or_shared_by_choice():
    fresh, shared = (synthetic.continual(1, 8, shared_draws=choice) for choice in (False, True))
    assert not torch.equal(fresh[0].train.main_effect, fresh[1].train.main_effect)
    assert same(fresh[0].train, shared[0].train)
    for k, stage in enumerate(shared):
        torch.testing.assert_close(stage.train.main_effect, shared[0].train.main_effect)
        moved = torch.where(stage.train.labels == 1, 0.125 * k, -0.125 * k)
        torch.testing.assert_close(stage.train.confounders[:, 0] - shared[0].train.confounders[:, 0], moved)
        kernel = torch.from_numpy(oracle_templates(2, (1, 0))[1]).float()
        difference = (stage.train.images - shared[0].train.images).flatten(1)
        torch.testing.assert_close(difference, torch.outer(moved, kernel), atol=1e-6, rtol=0)
    assert not torch.equal(shared[0].train.main_effect, shared[0].test.main_effect)


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("delta", [0.0, 0.3])
def test_delta_weakens_the_confounder_of_the_test_images_alone(name, delta):
    for k, (full, weak) in enumerate(
        zip(GENERATORS[name](per_group=8), GENERATORS[name](per_group=8, delta=delta), strict=True)
    ):
        assert same(full.train, weak.train)
        torch.testing.assert_close(weak.test.confounders, delta * full.test.confounders)
        assert torch.equal(weak.test.main_effect, full.test.main_effect)
        kernel = torch.from_numpy(oracle_templates(*where(name, k))[1]).float()
        taken = torch.outer((1 - delta) * full.test.confounders[:, 0], kernel)
        torch.testing.assert_close((full.test.images - weak.test.images).flatten(1), taken, atol=1e-6, rtol=0)
        assert weak.best == full.best


def test_samples_fit_torch_as_they_are():
    samples = synthetic.static(16).train
    assert len(samples) == 32
    images, confounders, labels = next(iter(DataLoader(TensorDataset(*samples.tensors()), batch_size=10)))
    assert images.shape == (10, 1, 32, 32)
    assert images.dtype == confounders.dtype == torch.float32
    assert confounders.shape == (10, 1)
    assert labels.dtype == torch.int64
    assert labels.sum() == 5  # an even prefix is balanced


@pytest.mark.parametrize("size", [8, 40])
def test_images_of_other_sizes(size):
    images = synthetic.static(2, image_size=size).train.images
    assert images.shape == (4, 1, size, size)
    assert synthetic.moving(2, image_size=48)[0].test.images.shape == (4, 1, 48, 48)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: synthetic.static(0), "per_group=0"),
        (lambda: synthetic.static(4, seed=-1), "seed=-1"),
        (lambda: synthetic.continual(4), "dataset=4"),
        (lambda: synthetic.continual(3, 4, delta=1.5), "delta=1.5"),
        (lambda: synthetic.continual(3, 4, delta=float("nan")), "delta=nan"),
        (lambda: synthetic.continual(3, 4, shift=float("nan")), "shift=nan"),
        (lambda: synthetic.moving(4, shift=float("inf")), "shift=inf"),
        (lambda: synthetic.static(4, image_size=33), "image_size=33"),
        (lambda: synthetic.moving(4, image_size=34), "image_size=34"),
    ],
)
def test_settings_out_of_range_are_named(make, word):
    with pytest.raises(SettingError, match=word):
        make()


def test_picture_shows_the_images_of_each_stage_and_group():
    stages = synthetic.moving(2)
    figure = synthetic.picture(stages, examples=1)
    assert len(figure.axes) == 2 * len(stages)
    shown = [np.asarray(ax.get_images()[0].get_array()) for ax in figure.axes]
    for column, stage in enumerate(stages):
        for group in (0, 1):
            assert stage.train.labels[group] == group
            np.testing.assert_array_equal(shown[group * len(stages) + column], stage.train.images[group, 0])
    assert len(synthetic.picture(synthetic.static(2)).axes) == 4


def test_picture_draws_no_more_examples_than_there_are():
    with pytest.raises(SettingError, match="examples=3"):
        synthetic.picture(synthetic.static(2), examples=3)


def test_picture_without_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"rmdn\[study\]"):
        synthetic.picture(synthetic.static(2))
