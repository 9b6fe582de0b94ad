"""Saliency of models whose answer is known, and regions where the blobs were put."""

import matplotlib
import numpy as np
import pytest
import torch

from rmdn.errors import InputError, MissingExtraError, SettingError
from rmdn.metrics import glass_brain, region_saliency, saliency_map
from rmdn.metrics.atlas import load_atlas

matplotlib.use("Agg")

AFFINE = np.array([[3.0, 0, 0, -90], [0, 3, 0, -126], [0, 0, 3, -72], [0, 0, 0, 1]])
HIPPOCAMPUS = (-25, -22, -16)  # left, millimetres


def blob(place, background=0.0):
    volume = np.full((61, 73, 61), background)
    x, y, z = np.rint((np.array(place) - AFFINE[:3, 3]) / 3).astype(int)
    volume[x - 1 : x + 2, y - 1 : y + 2, z - 1 : z + 2] = 1
    return volume


class Weighted(torch.nn.Module):
    """Class scores are weighted sums of the image, plus a confounder that does not touch it."""

    def __init__(self, weights):
        super().__init__()
        self.weights = torch.nn.Parameter(weights)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x, confounders=None):
        scores = self.drop(torch.einsum("nc...,k...->nk", x, self.weights))
        return scores if confounders is None else scores + confounders


def test_map_of_a_linear_model_is_its_weights():
    weights = torch.randn(2, 4, 5, 3, generator=torch.Generator().manual_seed(0))
    model = Weighted(weights).train()
    model.drop.eval()
    images = torch.randn(5, 1, 4, 5, 3, generator=torch.Generator().manual_seed(1))
    for k in range(2):
        expected = weights[k].abs() / weights[k].abs().max()
        found = saliency_map(model, images, target=k, confounders=torch.zeros(5, 1), batch_size=2)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert model.training  # modes came back, each its own
    assert not model.drop.training
    assert model.weights.grad is None
    predicted = model(images).argmax(1)
    mixed = sum(weights[k].abs() * int((predicted == k).sum()) for k in range(2))
    np.testing.assert_allclose(saliency_map(model, images), mixed / mixed.max(), rtol=1e-5)


def test_map_of_a_single_score_in_two_dimensions():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 1))
    found = saliency_map(model, torch.randn(3, 1, 4, 4))
    weights = model[1].weight.detach().abs().reshape(4, 4)
    np.testing.assert_allclose(found, weights / weights.max(), rtol=1e-5)


def test_bad_maps_are_named():
    model = Weighted(torch.zeros(2, 4, 4))
    images = torch.randn(3, 1, 4, 4)
    with pytest.raises(InputError, match="zero everywhere"):
        saliency_map(model, images)
    with pytest.raises(InputError, match="class from 0 to 1"):
        saliency_map(model, images, target=2)
    with pytest.raises(InputError, match="not empty"):
        saliency_map(model, images[:0])
    with pytest.raises(InputError, match="2 rows, expected 3"):
        saliency_map(model, images, confounders=torch.zeros(2, 1))
    assert model.training


def test_regions_are_found_where_they_are():
    found = region_saliency(blob(HIPPOCAMPUS, background=0.04), AFFINE, atlas="aal")
    assert next(iter(found.regions)) == "Hippocampus L"
    assert len(found.regions) <= 10
    assert list(found.regions.values()) == sorted(found.regions.values(), reverse=True)
    mirrored = region_saliency(blob((25, -22, -16)), AFFINE, top=1, atlas="aal")
    assert list(mirrored.regions) == ["Hippocampus R"]
    cerebellum = region_saliency(blob((-20, -65, -50)), AFFINE, top=1, atlas="aal")
    assert next(iter(cerebellum.regions)).startswith("Cerebelum")


def test_threshold_and_smoothing_are_the_papers():
    background = region_saliency(blob(HIPPOCAMPUS, background=0.04), AFFINE, atlas="aal").map
    np.testing.assert_array_equal(background, region_saliency(2 * blob(HIPPOCAMPUS), AFFINE, atlas="aal").map)
    assert background.max() == pytest.approx(27 / 125)  # 3 x 3 x 3 ones in a window of 5 x 5 x 5
    assert background.sum() == pytest.approx(27)


@pytest.mark.parametrize(
    ("volume", "affine", "options", "error", "words"),
    [
        (np.ones((4, 4)), AFFINE, {}, InputError, "shape .4, 4"),
        (np.zeros((4, 4, 4)), AFFINE, {}, InputError, "not all 0"),
        (np.full((4, 4, 4), np.nan), AFFINE, {}, InputError, "finite"),
        (np.ones((4, 4, 4)), np.eye(3), {}, InputError, "4 x 4"),
        (np.ones((4, 4, 4)), AFFINE * 100, {}, InputError, "No voxel lies"),
        (np.ones((4, 4, 4)), AFFINE, {"threshold": 1}, SettingError, "threshold"),
        (np.ones((4, 4, 4)), AFFINE, {"atlas": "oxford"}, SettingError, "harvard_oxford"),
    ],
)
def test_bad_volumes_are_named(volume, affine, options, error, words):
    with pytest.raises(error, match=words):
        region_saliency(volume, affine, **{"atlas": "aal", **options})


def test_without_the_atlas_files_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"rmdn\[imaging\]"):
        load_atlas("juelich")


def test_glass_brain_shows_the_regions():
    from matplotlib import pyplot

    found = region_saliency(blob(HIPPOCAMPUS), AFFINE, top=3, atlas="aal")
    display = glass_brain(found, atlas="aal", title="left hippocampus")
    assert set(display.axes) == {"l", "y", "r", "z"}
    display.close()
    pyplot.close("all")
    with pytest.raises(InputError, match="not in the atlas"):
        glass_brain(found._replace(regions={"Moon": 1.0}), atlas="aal")


@pytest.mark.slow
def test_harvard_oxford_has_its_sides_and_no_cerebellum():
    atlas = load_atlas()
    assert len(atlas.names) == 113
    for number, name in enumerate(atlas.names, 1):
        middle = atlas.affine[:3, :3] @ np.argwhere(atlas.labels == number).mean(0) + atlas.affine[:3, 3]
        side = {"Left": -1, "Right": 1}.get(name.split()[0])
        assert side is None or middle[0] * side > 0, name
    assert next(iter(region_saliency(blob(HIPPOCAMPUS), AFFINE).regions)) == "Left Hippocampus"
    assert region_saliency(blob((-20, -65, -50)), AFFINE).outside > 0.9
