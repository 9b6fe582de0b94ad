from dataclasses import replace

import nibabel
import numpy as np
import pytest
import torch
from PIL import Image

from rmdn.data.images import CachedFiles, ImageDataset, Images, augmented, read_image, readable, small_motions
from rmdn.errors import InputError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_picture_is_height_by_width_as_pillow_reads_it(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    np.testing.assert_allclose(read_image(tmp_path / "a.png"), pixels.transpose(2, 0, 1) / 255, rtol=1e-6)
    Image.fromarray(pixels[..., 0]).save(tmp_path / "grey.png")
    np.testing.assert_allclose(read_image(tmp_path / "grey.png"), pixels[None, ..., 0] / 255, rtol=1e-6)
    deep = pixels[..., 0].astype(np.uint16) * 257
    Image.fromarray(deep).save(tmp_path / "deep.png")
    np.testing.assert_allclose(read_image(tmp_path / "deep.png"), deep[None] / 65535, rtol=1e-6)
    Image.fromarray(pixels).convert("P").save(tmp_path / "palette.png")
    assert read_image(tmp_path / "palette.png").shape == (3, 12, 8)
    smaller = read_image(tmp_path / "a.png", (6, 4))
    expected = pixels.reshape(6, 2, 4, 2, 3).mean(axis=(1, 3)).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(smaller, expected, rtol=1e-5)


def test_volumes_are_turned_and_standardized_inside_the_brain(tmp_path):
    volume = np.random.default_rng(0).normal(100, 20, (6, 7, 8)).astype(np.float32)
    volume[:2] = 0
    nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), tmp_path / "ras.nii.gz")
    turned = nibabel.Nifti1Image(np.ascontiguousarray(volume[::-1, ::-1]), np.diag([-1, -1, 1, 1]))
    nibabel.save(turned, tmp_path / "lps.nii")
    ras, lps = read_image(tmp_path / "ras.nii.gz"), read_image(tmp_path / "lps.nii")
    assert torch.equal(ras, lps)
    inside = volume != 0
    expected = np.where(inside, (volume - volume[inside].mean()) / volume[inside].std(), 0)
    np.testing.assert_allclose(ras[0], expected, atol=1e-5)


def test_arrays_are_channels_first(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 6, 4)))
    np.save(tmp_path / "b.npy", np.ones((6, 4)))
    np.save(tmp_path / "c.npy", np.full((6, 4), np.nan))
    assert read_image(tmp_path / "a.npy", (6, 4)).shape == (2, 6, 4)
    assert read_image(tmp_path / "b.npy", (6, 4)).shape == (1, 6, 4)
    with pytest.raises(InputError, match="not finite"):
        read_image(tmp_path / "c.npy", (6, 4))


def test_cache_notices_a_changed_file_and_mends_a_broken_entry(tmp_path):
    images = Images(size=(4, 4), cache=tmp_path / "own")
    np.save(tmp_path / "a.npy", np.zeros((4, 4)))
    assert CachedFiles([tmp_path / "a.npy"], images)[0].max() == 0
    np.save(tmp_path / "a.npy", np.ones((4, 4), dtype=np.float32))
    assert CachedFiles([tmp_path / "a.npy"], images)[0].min() == 1
    entries = list((tmp_path / "own").glob("*.pt"))
    assert len(entries) == 2
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:50])
    assert CachedFiles([tmp_path / "a.npy"], images)[0].min() == 1


def test_images_of_different_shape_are_named(tmp_path):
    for name, shape in (("a", (4, 4)), ("b", (4, 4)), ("c", (5, 4))):
        np.save(tmp_path / f"{name}.npy", np.ones((1, *shape)))
    paths = [tmp_path / f"{name}.npy" for name in "abc"]
    with pytest.raises(InputError, match=r"1 images differ in shape.*c\.npy"):
        readable(paths, Images())


def test_motions_are_a_voxel_a_degree_and_flips():
    point = torch.zeros(1, 33, 33, 33)
    point[0, 10, 16, 20] = 1
    grid = torch.stack(torch.meshgrid(*[torch.arange(33.0)] * 3, indexing="ij"))
    torch.manual_seed(0)
    moved = [augmented(point, small_motions()) for _ in range(60)]
    places = np.array([((grid * image[0]).sum((1, 2, 3)) / image.sum()).numpy() for image in moved])
    flipped = places[:, 0] > 16
    assert 15 < flipped.sum() < 45
    places[flipped, 0] = 32 - places[flipped, 0]
    shift = np.abs(places - [10, 16, 20])
    assert 0.8 < shift.max() < 1 + np.deg2rad(1) * 10


def test_only_training_images_move_and_torch_seeds_them(tmp_path):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((8, 8, 8)))
    images = Images(size=(8, 8, 8), augment=small_motions())
    args = ([tmp_path / "a.npy"], torch.zeros(1, 1), torch.zeros(1))
    train, test = ImageDataset(*args, images, train=True), ImageDataset(*args, images)
    assert torch.equal(test[0][0], ImageDataset(*args, replace(images, augment=None))[0][0])
    torch.manual_seed(0)
    first, second = train[0][0], train[0][0]
    torch.manual_seed(0)
    assert torch.equal(train[0][0], first)
    assert not torch.equal(first, second)
    assert type(first) is torch.Tensor
    assert first.shape == (1, 8, 8, 8)
