"""The paper's synthetic images, in which what an unbiased classifier can reach is known by a formula.

Two groups of small images. In each image two Gaussian kernels of magnitude sigma_A (the main effect) lie on
the main diagonal and one of magnitude sigma_B (the confounder) lies off it; both differ between the groups.
Whoever looks at the main effect alone can reach `Samples.best` and no more; what is above it came from the
confounder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rmdn.errors import MissingExtraError, SettingError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Range = tuple[float, float]
GroupRanges = tuple[Range, Range]

# The paper's N(0, 0.01), read as a standard deviation: sigma_A can then be told from the pixels to 0.05, and
# the theory's accuracy, which knows no noise, can be reached. Read as a variance that would be 0.5, half the
# overlap of the groups, and the best classifier would stay 1.6 (static) to 2.4 points (stage 1) below theory.
NOISE = 0.01


@dataclass(frozen=True, eq=False)
class Samples:
    """Images with labels, confounder and main effect; the groups alternate: every even prefix is balanced."""

    name: str
    images: Tensor  # (N, 1, size, size) float32
    labels: Tensor  # (N,) int64: 0 for the paper's group 1, 1 for its group 2
    confounders: Tensor  # (N, 1) float32: what the image holds, delta * sigma_B
    main_effect: Tensor  # (N,) float32: sigma_A
    main_ranges: GroupRanges
    confounder_ranges: GroupRanges

    @property
    def best(self) -> float:
        """The highest accuracy in expectation without the confounder: 1 - overlap / 2."""
        return 1 - overlap(*self.main_ranges) / 2

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """(images, confounders, labels), as `TensorDataset(*samples.tensors())` takes them."""
        return self.images, self.confounders, self.labels

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage's training and test samples, drawn apart from each other."""

    name: str
    train: Samples
    test: Samples

    @property
    def best(self) -> float:
        """The highest accuracy in expectation, on this stage's test samples, without the confounder."""
        return self.test.best


def overlap(first: Range, second: Range) -> float:
    """The mass two uniform distributions share (the integral of the smaller density): 0 apart, 1 if equal."""
    widths = [high - low for low, high in (first, second)]
    if not all(math.isfinite(width) and width > 0 for width in widths):
        raise SettingError(f"A range is (low, high) with low < high, both finite; got {first} and {second}.")
    shared = min(first[1], second[1]) - max(first[0], second[0])
    return max(shared, 0.0) / max(widths)


def static(per_group: int = 1024, *, seed: int = 0, delta: float = 1.0, image_size: int = 32) -> Stage:
    """The data set for static learning: sigma_A and sigma_B from U(1, 4) in group 1 and U(3, 6) in group 2.

    Args:
        per_group: images of each group, in the training and again in the test samples.
        seed: the same seed gives the same images, whatever else draws random numbers.
        delta: the confounder's strength in the test images, 0 (absent) to 1; training images keep theirs.
        image_size: the side of an image in pixels, an even number.
    """
    _check(per_group, seed, delta, image_size, grid=2)
    ranges = ((1.0, 4.0), (3.0, 6.0))
    templates = _templates(image_size, grid=2, confounder=(1, 0))
    return _stage("static", ranges, ranges, templates, per_group, (seed, 0), delta)


def continual(
    dataset: int,
    per_group: int = 1024,
    *,
    seed: int = 0,
    shift: float = 0.125,
    shared_draws: bool = False,
    delta: float = 1.0,
    image_size: int = 32,
) -> list[Stage]:
    """The continuum: five stages, the first with both magnitudes from U(3, 5) in group 1, U(4, 6) in group 2.

    Args:
        dataset: 1: sigma_B's ranges move apart with every stage; 2: sigma_A's ranges move together; 3: both.
        per_group: images of each group, in the training and again in the test samples of each stage.
        seed: the same seed gives the same images, whatever else draws random numbers.
        shift: how far each group's range moves with every stage.
        shared_draws: take the same random numbers in every stage, so that a stage is the one before it,
            shifted (as in the authors' code), rather than fresh ones (as in the paper's text).
        delta: the confounder's strength in the test images, 0 (absent) to 1; training images keep theirs.
        image_size: the side of an image in pixels, an even number.
    """
    if dataset not in (1, 2, 3):
        raise SettingError(
            f"dataset={dataset!r} is not one of the paper's three: 1 (the confounder changes), "
            "2 (the main effect changes) or 3 (both change)."
        )
    _check(per_group, seed, delta, image_size, grid=2)
    templates = _templates(image_size, grid=2, confounder=(1, 0))
    stages = []
    for k in range(5):
        main = _moved_apart(shift, -k if dataset in (2, 3) else 0)
        confounder = _moved_apart(shift, k if dataset in (1, 3) else 0)
        key = (seed, 0 if shared_draws else k)
        name = f"continual {dataset}, stage {k + 1}"
        stages.append(_stage(name, main, confounder, templates, per_group, key, delta))
    return stages


def moving(
    per_group: int = 512,
    *,
    seed: int = 0,
    shift: float = 0.0,
    shared_draws: bool = False,
    delta: float = 1.0,
    image_size: int = 32,
) -> list[Stage]:
    """The second continual data set: in four stages the confounder goes from bottom left to top right.

    The image is a 4 x 4 grid; the main effect stays in its top-left and bottom-right cells. The arguments are
    those of `continual`, with the paper's values: 1,024 images a stage, and ranges of sigma_B that stay
    (`shift` moves them apart). `image_size` is a multiple of 4.
    """
    _check(per_group, seed, delta, image_size, grid=4)
    stages = []
    for k in range(4):
        templates = _templates(image_size, grid=4, confounder=(3 - k, k))
        main, confounder = _moved_apart(shift, 0), _moved_apart(shift, k)
        key = (seed, 0 if shared_draws else k)
        stages.append(_stage(f"moving, stage {k + 1}", main, confounder, templates, per_group, key, delta))
    return stages


def picture(stages: Stage | Sequence[Stage], examples: int = 2) -> Figure:
    """Draw the first training images of each group (rows) in each stage (columns), with their magnitudes."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("A picture needs matplotlib: pip install 'rmdn[study]'.") from error
    columns = [stages] if isinstance(stages, Stage) else list(stages)
    most = min(len(stage.train) // 2 for stage in columns)
    if not 1 <= examples <= most:
        raise SettingError(f"examples={examples} of each group cannot be drawn; give a number from 1 to {most}.")
    shown = torch.cat([stage.train.images[: 2 * examples] for stage in columns])
    darkest, brightest = shown.min().item(), shown.max().item()
    figure = Figure(figsize=(1.0 + 1.6 * len(columns), 0.5 + 1.75 * 2 * examples), layout="constrained")
    axes = figure.subplots(2 * examples, len(columns), squeeze=False)
    for column, stage in enumerate(columns):
        for row in range(2 * examples):
            group, example = divmod(row, examples)
            i = 2 * example + group  # the groups alternate
            ax = axes[row, column]
            ax.imshow(stage.train.images[i, 0].numpy(), cmap="gray", vmin=darkest, vmax=brightest)
            ax.set(xticks=[], yticks=[])
            main, confounder = stage.train.main_effect[i], stage.train.confounders[i, 0]
            ax.set_xlabel(rf"$\sigma_A$ {main:.1f}   $\sigma_B$ {confounder:.1f}", fontsize=8)
            if column == 0:
                ax.set_ylabel(f"group {group + 1}", fontsize=9)
        axes[0, column].set_title(f"{stage.name.split(', ')[-1]}\nbest {stage.best:.4g}", fontsize=9)
    return figure


def _moved_apart(shift: float, times: int) -> GroupRanges:
    """The continuum's first ranges, group 1's moved down and group 2's moved up by so many shifts."""
    if not math.isfinite(shift):
        raise SettingError(f"shift={shift} is not a distance; give a finite number (the paper: 0.125).")
    distance = shift * times
    return (3 - distance, 5 - distance), (4 + distance, 6 + distance)


def _kernel(size: int) -> Tensor:
    """A Gaussian kernel of unit sum whose side spans 5.5 standard deviations to each side of the middle.

    Each pixel is the square root of the Gaussian's mass in it, as in the published code of the two papers
    that this data set follows (BR-Net and MDN); the root widens the Gaussian by sqrt(2).
    """
    edges = torch.linspace(-5.5, 5.5, size + 1, dtype=torch.float64)
    side = torch.special.ndtr(edges).diff().sqrt()
    kernel = torch.outer(side, side)
    return kernel / kernel.sum()


def _templates(image_size: int, grid: int, confounder: tuple[int, int]) -> Tensor:
    """The image of a unit main effect and that of a unit confounder. (2, size, size)"""
    cell = image_size // grid
    templates = torch.zeros(2, grid, cell, grid, cell, dtype=torch.float64)
    templates[0, 0, :, 0] = templates[0, -1, :, -1] = _kernel(cell)
    templates[1, confounder[0], :, confounder[1]] = _kernel(cell)
    return templates.view(2, image_size, image_size).float()


def _stage(
    name: str,
    main: GroupRanges,
    confounder: GroupRanges,
    templates: Tensor,
    per_group: int,
    key: tuple[int, int],
    delta: float,
) -> Stage:
    train = _samples(f"{name}, train", main, confounder, templates, per_group, _generator(*key, 0))
    (a, b), (c, d) = confounder
    weakened = ((delta * a, delta * b), (delta * c, delta * d))
    test = _samples(f"{name}, test", main, weakened, templates, per_group, _generator(*key, 1))
    return Stage(name, train, test)


def _samples(
    name: str,
    main: GroupRanges,
    confounder: GroupRanges,
    templates: Tensor,
    per_group: int,
    generator: torch.Generator,
) -> Samples:
    n, size = 2 * per_group, templates.shape[-1]
    labels = torch.arange(n) % 2
    low, high = torch.tensor([main, confounder]).unbind(-1)  # (2 magnitudes, 2 groups) each
    strengths = torch.lerp(low.T[labels], high.T[labels], torch.rand(n, 2, generator=generator))  # (N, 2)
    noise = torch.randn(n, size * size, generator=generator)
    images = torch.addmm(noise, strengths, templates.flatten(1), beta=NOISE, out=noise)
    return Samples(
        name=name,
        images=images.view(n, 1, size, size),
        labels=labels,
        confounders=strengths[:, 1:].clone(),
        main_effect=strengths[:, 0].clone(),
        main_ranges=main,
        confounder_ranges=confounder,
    )


def _generator(seed: int, stage: int, split: int) -> torch.Generator:
    """A random stream of its own for each stage and split: none depends on how many others are drawn."""
    sequence = np.random.SeedSequence(seed, spawn_key=(stage, split))
    return torch.Generator().manual_seed(int(sequence.generate_state(1, np.uint64)[0]))


def _check(per_group: int, seed: int, delta: float, image_size: int, grid: int) -> None:
    if per_group < 1:
        raise SettingError(f"per_group={per_group} leaves the groups empty; give at least 1 image a group.")
    if seed < 0:
        raise SettingError(f"seed={seed} is negative; give a whole number from 0 up.")
    if not 0 <= delta <= 1:
        raise SettingError(f"delta={delta} is not a strength; give a number from 0 (no confounder) to 1 (the full one).")
    if image_size < 4 * grid or image_size % grid:
        raise SettingError(
            f"image_size={image_size} cannot be cut into {grid} x {grid} cells of at least 4 pixels a side; "
            f"give a multiple of {grid} from {4 * grid} up (the paper: 32)."
        )
