"""Pictures of skin lesions for a stand-in: shape, colours and texture by diagnosis, skin by age."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmdn.extras import need

Color = tuple[float, float, float]


@dataclass(frozen=True)
class Look:
    """A diagnosis as dermatoscopy sees it. `edge`: softness of the border; `ragged`: how uneven it is."""

    center: Color
    rim: Color
    size: float
    ragged: float
    edge: float
    mottle: float  # uneven pigment
    network: float = 0.0  # a net of fine dark lines
    dots: Color | None = None  # round spots of this colour
    lines: Color | None = None  # fine vessels of this colour


LOOKS = {
    "nv": Look((0.45, 0.28, 0.20), (0.63, 0.43, 0.33), 0.50, 0.05, 0.10, 0.05, network=0.10),
    "mel": Look((0.22, 0.17, 0.19), (0.45, 0.28, 0.22), 0.70, 0.22, 0.06, 0.26, network=0.08, dots=(0.16, 0.15, 0.2)),
    "bkl": Look((0.55, 0.41, 0.28), (0.50, 0.36, 0.26), 0.60, 0.10, 0.02, 0.12, dots=(0.86, 0.76, 0.60)),
    "bcc": Look(
        (0.82, 0.56, 0.54),
        (0.76, 0.50, 0.48),
        0.55,
        0.12,
        0.14,
        0.08,
        dots=(0.42, 0.42, 0.52),
        lines=(0.72, 0.20, 0.22),
    ),
    "akiec": Look((0.84, 0.54, 0.50), (0.80, 0.46, 0.43), 0.75, 0.18, 0.30, 0.16, dots=(0.92, 0.84, 0.78)),
    "vasc": Look((0.50, 0.10, 0.16), (0.66, 0.24, 0.28), 0.42, 0.06, 0.04, 0.10, dots=(0.32, 0.04, 0.12)),
    "df": Look((0.88, 0.76, 0.70), (0.64, 0.45, 0.37), 0.42, 0.05, 0.22, 0.04, network=0.05),
}


def draw_lesion(
    dx: str, age: float, size: tuple[int, int], lesion: np.random.Generator, view: np.random.Generator
) -> np.ndarray:
    """(height, width, 3) bytes. What belongs to the lesion comes from `lesion`, the rest from `view`."""
    width, height = size
    skin = _skin(age, (height, width), lesion)
    x, y = _grid((height, width), view)
    picture = _lesion(LOOKS[dx], skin, x, y, lesion)
    picture = _hairs(picture, view)
    light = view.normal(1.0, 0.04) * (1 - 0.18 * (x**2 + y**2) / 2)  # darker towards the corners
    picture = picture * light[..., None] + view.normal(0, 0.012, picture.shape)
    return np.asarray(np.clip(picture, 0, 1) * 255, dtype=np.uint8)


def _grid(shape: tuple[int, int], view: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of the pixels, about -1.3 to 1.3 by -1 to 1, for this view's shift, turn and distance."""
    height, width = shape
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width) * width / height, indexing="ij")
    turn, zoom = view.uniform(0, 2 * np.pi), view.uniform(0.9, 1.15)
    x, y = x + view.normal(0, 0.06), y + view.normal(0, 0.06)
    return zoom * (x * np.cos(turn) - y * np.sin(turn)), zoom * (x * np.sin(turn) + y * np.cos(turn))


def _skin(age: float, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Young skin is pale, pink and even; with age it gets darker, yellower and blotched, with furrows."""
    years = (age - 50) / 100
    base = np.array([0.86, 0.68, 0.62]) + years * np.array([-0.16, -0.16, -0.30]) + rng.normal(0, 0.02, 3)
    blotches = _cloud(shape, 12, rng)[..., None] * (0.012 + 0.0003 * age) * np.array([0.6, 1.0, 1.2])
    furrows = np.abs(_cloud(shape, 3, rng))[..., None] * (0.004 + 0.0004 * age)
    return np.asarray(base + blotches - furrows)


def _lesion(look: Look, skin: np.ndarray, x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    shape = x.shape
    angle, radius = np.arctan2(y, x * rng.uniform(0.75, 1.0)), np.hypot(x * rng.uniform(0.75, 1.0), y)
    border = look.size * rng.uniform(0.8, 1.2) * (1 + _wave(angle, look.ragged, rng))
    inner = radius / border  # 0 in the centre, 1 at the border
    cover = 1 / (1 + np.exp(np.clip((inner - 1) / (0.25 * look.edge + 0.01), -30, 30)))
    mix = np.clip(inner + 0.6 * look.mottle * _cloud(shape, 14, rng), 0, 1)[..., None]
    tint = rng.normal(0, 0.015, 3) + rng.normal(0, 0.05)  # no two lesions are alike
    color = np.array(look.center) * (1 - mix) + np.array(look.rim) * mix + tint
    color = color * (1 + look.mottle * _cloud(shape, 10, rng))[..., None]
    if look.network:
        color = color * (1 - look.network * (np.abs(_cloud(shape, 2.5, rng)) < 0.35))[..., None]
    if look.dots is not None:
        color = _painted(color, _spots(inner, x, y, rng), look.dots)
    if look.lines is not None:
        color = _painted(color, np.abs(_cloud(shape, 8, rng)) < 0.07, look.lines)
    return np.asarray(skin * (1 - cover[..., None]) + color * cover[..., None])


def _wave(angle: np.ndarray, amount: float, rng: np.random.Generator) -> np.ndarray:
    waves = [rng.normal(0, amount / k) * np.cos(k * angle + rng.uniform(0, 6.3)) for k in range(2, 9)]
    return np.asarray(np.sum(waves, axis=0))


def _spots(inner: np.ndarray, x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Where one of some round spots is, within the lesion."""
    found = np.zeros(x.shape, dtype=bool)
    for _ in range(int(rng.integers(8, 20))):
        far, turn, width = rng.uniform(0, 0.5), rng.uniform(0, 6.3), rng.uniform(0.02, 0.06)
        found |= (x - far * np.cos(turn)) ** 2 + (y - far * np.sin(turn)) ** 2 < width**2
    return np.asarray(found & (inner < 0.95))


def _painted(picture: np.ndarray, where: np.ndarray, color: Color) -> np.ndarray:
    ndimage = need("scipy.ndimage", "study")
    share = 0.8 * ndimage.gaussian_filter(where.astype(np.float64), 0.8)[..., None]
    return np.asarray(picture * (1 - share) + np.array(color) * share)


def _hairs(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Now and then some dark, slightly bent hairs."""
    if rng.random() > 0.3:
        return picture
    height, width, _ = picture.shape
    picture = picture.copy()
    t = np.linspace(0, 1, 2 * width)
    for _ in range(int(rng.integers(2, 9))):
        (x0, x1), (y0, y1) = rng.uniform(0, width, 2), rng.uniform(0, height, 2)
        bend = rng.normal(0, 0.08) * height * np.sin(np.pi * t)
        rows = np.clip(y0 + (y1 - y0) * t + bend, 0, height - 1).astype(int)
        columns = np.clip(x0 + (x1 - x0) * t, 0, width - 1).astype(int)
        picture[rows, columns] *= 0.45
    return picture


def _cloud(shape: tuple[int, int], grain: float, rng: np.random.Generator) -> np.ndarray:
    """Smooth noise of unit deviation; `grain` in pixels of a picture 225 high."""
    ndimage = need("scipy.ndimage", "study")
    noise = ndimage.gaussian_filter(rng.standard_normal(shape), grain * shape[0] / 225, mode="wrap")
    return np.asarray(noise / noise.std())
