"""Draw docs/pictures/ham10000.jpg, adni.png and abcd.png: what the stand-ins look like."""

from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np

from rmdn.data.simulate import abcd, adni
from rmdn.data.simulate.brain import Brains, Effects
from rmdn.data.simulate.skin import LOOKS, draw_lesion

HERE = Path(__file__).parent


def save(rows: list[list[np.ndarray]], titles: list[str], labels: list[str], name: str, dpi: int) -> None:
    size = (1.5 * len(titles), 1.55 * len(labels))
    figure, axes = plt.subplots(len(labels), len(titles), figsize=size, squeeze=False)
    for i, row in enumerate(rows):
        for j, picture in enumerate(row):
            axes[i, j].imshow(picture, cmap="gray", vmin=0, vmax=1050 if picture.ndim == 2 else None)
            axes[i, j].set(xticks=[], yticks=[], title=titles[j] if i == 0 else "")
        axes[i, 0].set_ylabel(labels[i])
    figure.tight_layout(pad=0.4)
    figure.savefig(HERE / name, dpi=dpi)


def skins() -> None:
    def picture(dx: str, age: int, i: int) -> np.ndarray:
        return draw_lesion(dx, age, (140, 105), np.random.default_rng([7, i]), np.random.default_rng([9, i]))

    rows = [[picture(dx, age, 10 * j + age) for j, dx in enumerate(LOOKS)] for age in (20, 50, 80)]
    save(rows, list(LOOKS), ["age 20", "age 50", "age 80"], "ham10000.jpg", 70)


def slices(brains: Brains, effects: Effects, place: tuple[float, float, float]) -> list[np.ndarray]:
    """Axial, coronal and sagittal slices of one person, so that rows differ by effects alone."""
    volume = brains.draw(effects, np.random.default_rng(3), np.random.default_rng(4))
    x, y, z = (np.linalg.inv(brains.affine) @ [*place, 1])[:3].round().astype(int)
    return [volume[:, :, z].T[::-1], volume[:, y].T[::-1], volume[x].T[::-1]]


def elders(brains: Brains) -> None:
    people = [("CN", 60), ("CN", 90), ("AD", 60), ("AD", 90)]
    views = [
        slices(brains, adni.effects_of({"group": group, "age": age, "sex": "F"}), (27, -22, 10)) for group, age in people
    ]
    rows = [[view[0] for view in views], [view[1] for view in views]]
    save(rows, [f"{group}, {age} years" for group, age in people], ["z = 10 mm", "y = -22 mm"], "adni.png", 70)


def children(brains: Brains) -> None:
    cases = [("girl", "2", 1), ("girl", "2", 5), ("boy", "1", 1), ("boy", "1", 5)]
    views = [slices(brains, abcd.effects_of({"sex": sex, "score": score}), (24, 6, -36)) for _, sex, score in cases]
    rows = [[view[2] for view in views], [view[1] for view in views]]
    titles = [f"{name}, score {score}" for name, _, score in cases]
    save(rows, titles, ["x = 24 mm", "y = 6 mm"], "abcd.png", 70)


skins()
brains = Brains(2)
elders(brains)
children(brains)
