"""Where does a network look? Saliency maps, the regions they fall on, and a glass brain."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rmdn.errors import InputError, SettingError
from rmdn.metrics._inputs import at_least, need
from rmdn.metrics.atlas import Atlas, load_atlas
from rmdn.progress import track

Floats = NDArray[np.float64]


class Saliency(NamedTuple):
    """A smoothed map in MNI space and its regions, the most salient first."""

    map: Floats  # (X, Y, Z)
    affine: Floats  # (4, 4)
    regions: dict[str, float]  # mean saliency of the top regions
    outside: float  # share of the saliency that lies in no region of the atlas


def saliency_map(
    model: nn.Module,
    images: Tensor,
    *,
    confounders: Tensor | None = None,
    target: Any = None,
    batch_size: int = 8,
) -> Floats:
    """Mean absolute gradient of a class score by each place of images (n, channels, ...), at most 1.

    `target` is the class to explain, one for all or one an image (n,); the predicted class if not given. With
    confounders (n, q), the model is called as `model(x, confounders=c)`. The model runs in eval mode and gets
    its mode back.

    It assumes that a small change of a voxel tells how much the voxel matters, and images aligned to each
    other. It cannot show that a region is needed (its information may be elsewhere too), and saturated scores
    hide what they rest on.
    """
    attribution = need("captum.attr", "imaging", "A saliency map")
    at_least(batch_size, 1, "batch_size")
    n = len(images)
    if images.ndim < 3 or not n or not images.is_floating_point():
        raise InputError(f"images must be floats (n, channels, ...), not empty; got {tuple(images.shape)}, {images.dtype}.")
    if confounders is not None and len(confounders) != n:
        raise InputError(f"confounders has {len(confounders)} rows, expected {n}: one row an image.")
    targets = None if target is None else torch.as_tensor(target).expand(n)
    modes = {module: module.training for module in model.modules()}
    model.eval()

    def scores(x: Tensor, c: Tensor | None) -> Tensor:
        return torch.as_tensor(model(x) if c is None else model(x, confounders=c))

    total = torch.zeros(images.shape[2:], dtype=torch.float64)
    gradient = attribution.Saliency(scores)
    starts = range(0, n, batch_size)
    try:
        for start in track(starts, "Saliency", long=images.numel() > 5e7):
            rows = slice(start, start + batch_size)
            x = images[rows].detach().clone().requires_grad_()
            c = None if confounders is None else confounders[rows]
            wanted = _targets(scores(x, c), None if targets is None else targets[rows])
            slope = gradient.attribute(x, target=wanted, additional_forward_args=(c,), abs=True)
            total += slope.detach().sum((0, 1)).cpu().double()
    finally:
        for module, mode in modes.items():
            module.training = mode
    largest = float(total.max())
    if not np.isfinite(largest) or largest == 0:
        what = "zero everywhere" if largest == 0 else "not finite"
        raise InputError(f"The gradient is {what}: the score does not depend on the images, or the network is broken.")
    return np.asarray((total / largest).numpy())


def region_saliency(
    saliency: Floats,
    affine: Any,
    *,
    threshold: float = 0.05,
    smoothing: int = 5,
    top: int = 10,
    atlas: str = "harvard_oxford",
) -> Saliency:
    """The regions that a map (X, Y, Z) in MNI space falls on: threshold, smooth, rank, keep the top.

    Voxels under `threshold` (of a map scaled to at most 1) become 0; each voxel becomes the mean of its
    `smoothing`^3 neighbours; regions are ranked by their mean. `affine` maps voxels to millimetres: nibabel's
    `image.affine`.

    It assumes images registered to MNI space and the right affine. It cannot show more than the atlas holds:
    the Harvard-Oxford atlas has no cerebellum (what falls on it is in `outside`); `atlas="aal"` has one.
    """
    ndimage = need("scipy.ndimage", "imaging", "Smoothing a saliency map")
    values = np.asarray(saliency, np.float64)
    if values.ndim != 3 or not np.isfinite(values).all() or values.min() < 0 or values.max() <= 0:
        raise InputError(f"saliency must be a finite map (X, Y, Z), from 0, not all 0; got shape {values.shape}.")
    if not 0 <= threshold < 1:
        raise SettingError(f"threshold must lie in [0, 1), the map being scaled to at most 1; got {threshold}.")
    at_least(smoothing, 1, "smoothing")
    at_least(top, 1, "top")
    values = values / values.max()
    smooth = ndimage.uniform_filter(np.where(values < threshold, 0.0, values), smoothing, mode="constant")
    affine = np.asarray(affine, np.float64)
    regions = load_atlas(atlas)
    labels = _on_grid(regions, affine, values.shape)
    count = np.bincount(labels.ravel(), minlength=len(regions.names) + 1)
    total = np.bincount(labels.ravel(), smooth.ravel(), minlength=len(regions.names) + 1)
    if not count[1:].any():
        raise InputError("No voxel lies in the atlas: the affine does not map this volume to MNI space.")
    mean = total[1:] / np.maximum(count[1:], 1)
    order = np.argsort(-mean, kind="stable")[:top]
    found = {regions.names[k]: float(mean[k]) for k in order if mean[k] > 0}
    return Saliency(smooth, affine, found, float(total[0] / total.sum()))


def glass_brain(saliency: Saliency, *, atlas: str = "harvard_oxford", title: str | None = None, axes: Any = None) -> Any:
    """Draw the top regions, each filled with its mean saliency, in a glass brain; returns nilearn's display.

    It assumes the atlas that the regions were ranked with. It cannot show depth: every view is a
    projection of the largest value.
    """
    plotting = need("nilearn.plotting", "imaging", "A glass brain")
    nibabel = need("nibabel", "imaging", "A glass brain")
    regions = load_atlas(atlas)
    unknown = set(saliency.regions) - set(regions.names)
    if unknown or not saliency.regions:
        raise InputError(f"The regions {sorted(unknown)} are not in the atlas {atlas!r}; give the atlas they are from.")
    fill = np.zeros(len(regions.names) + 1, np.float32)
    for name, value in saliency.regions.items():
        fill[regions.names.index(name) + 1] = value
    image = nibabel.Nifti1Image(fill[regions.labels], regions.affine)
    return plotting.plot_glass_brain(
        image,
        display_mode="lyrz",
        colorbar=True,
        cmap="viridis",
        vmin=0,
        threshold=1e-9,
        title=title,
        axes=axes,
    )


def _targets(scores: Tensor, wanted: Tensor | None) -> Tensor | None:
    """The class of each row; None where the network gives one score."""
    if scores.ndim == 1 or scores.shape[1] == 1:
        return None if scores.ndim == 1 else torch.zeros(len(scores), dtype=torch.long, device=scores.device)
    if wanted is None:
        return scores.detach().argmax(1)
    if bool(((wanted < 0) | (wanted >= scores.shape[1])).any()):
        raise InputError(f"target must be a class from 0 to {scores.shape[1] - 1}; got {sorted(set(wanted.tolist()))}.")
    return wanted.long().to(scores.device)


def _on_grid(atlas: Atlas, affine: Floats, shape: tuple[int, ...]) -> NDArray[np.intp]:
    """The atlas's region number at each voxel's centre, (X, Y, Z)."""
    if affine.shape != (4, 4) or not np.isfinite(affine).all():
        raise InputError(f"affine must be a finite 4 x 4 matrix, nibabel's image.affine; got shape {affine.shape}.")
    to_atlas = np.linalg.inv(atlas.affine) @ affine
    voxels = np.indices(shape).reshape(3, -1)
    places = np.rint(to_atlas[:3, :3] @ voxels + to_atlas[:3, 3:]).astype(np.intp)  # (3, voxels)
    inside = ((places >= 0) & (places < np.array(atlas.labels.shape)[:, None])).all(0)
    numbers = np.zeros(voxels.shape[1], np.intp)
    numbers[inside] = atlas.labels[tuple(places[:, inside])]
    return numbers.reshape(shape)
