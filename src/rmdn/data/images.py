"""Images from files (PNG, JPEG, NIfTI, NumPy), read by MONAI, cached, and checked before any training.

Each file becomes (C, ...) float32 at the asked size. Photographs come as bytes and are divided by their
largest value (255); NIfTI volumes are turned to right-anterior-superior axes and standardized over their
voxels that are not zero, since the units of MRI mean nothing; arrays (.npy) are taken as they are, channels
first.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from rmdn.cells import some
from rmdn.data.progress import track
from rmdn.errors import InputError, MissingExtraError, RMDNWarning, SettingError
from rmdn.extras import need

RECIPE = 1  # raise it when `read_image` changes, so that no cache keeps the old form
PHOTOGRAPHS = (".png", ".jpg", ".jpeg")
VOLUMES = (".nii", ".nii.gz")
ARRAYS = (".npy",)
Augment = Callable[[Tensor], Any]


@dataclass(frozen=True)
class Images:
    """How the images of a study are read.

    `size`: height and width, or three sizes of a volume; None keeps each as it is.
    `unreadable`: "error" refuses the study, "drop" leaves those rows out with a warning.
    `cache`: a folder, by default one in the user's own cache.
    `augment`: changes training images at random, such as `small_motions()`.
    Given to an adapter, it replaces all of that adapter's settings.
    """

    size: tuple[int, ...] | None = None
    unreadable: str = "error"
    cache: str | Path | None = None
    augment: Augment | None = None

    def __post_init__(self) -> None:
        if self.unreadable not in ("error", "drop"):
            raise SettingError(f"unreadable={self.unreadable!r} is neither 'error' nor 'drop'.")
        if self.size is not None and (len(self.size) not in (2, 3) or min(self.size) < 1):
            raise SettingError(f"size={self.size}: two or three positive numbers, or None.")


class ImageDataset(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """(image (C, ...), confounders (c,), label) for each of n files; `train` turns random changes on."""

    def __init__(
        self,
        paths: Sequence[str | Path],
        confounders: Tensor,
        labels: Tensor,
        images: Images,
        train: bool = False,
    ) -> None:
        self.files = CachedFiles(paths, images)
        self.confounders = confounders  # (n, c)
        self.labels = labels  # (n,)
        self.augment = images.augment if train else None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        image = self.files[index]
        if self.augment is not None:
            image = augmented(image, self.augment)
        return image, self.confounders[index], self.labels[index]


class CachedFiles:
    """Files as tensors: the first reading is kept on disk (MONAI's PersistentDataset), later ones are fast.

    On disk, because 10,000 volumes do not fit in memory, and so that a second run starts at once. A file that
    changes gets a new entry, since its time and size are part of the key.
    """

    def __init__(self, paths: Sequence[str | Path], images: Images) -> None:
        persistent, transforms = need("monai.data", "imaging"), need("monai.transforms", "imaging")
        self.folder = Path(images.cache or _cache_folder())
        self.items = [_item(Path(path), images.size) for path in paths]
        read = transforms.Compose([transforms.Lambda(_read_item)])
        self.store = persistent.PersistentDataset(
            self.items, read, cache_dir=self.folder, hash_func=persistent.pickle_hashing
        )

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Tensor:
        try:
            image: Tensor = self.store[index]
        except RuntimeError:  # perhaps a cache entry that an earlier run was killed over: write it anew
            (self.folder / f"{self.store.hash_func(self.items[index]).decode()}.pt").unlink(missing_ok=True)
            image = self.store[index]
        return image


def readable(paths: Sequence[str | Path], images: Images) -> np.ndarray:
    """(n,) True where the file reads; fills the cache on the way. Bad files are named, counted and refused.

    With `images.unreadable="drop"` they are only warned of, and the caller leaves their rows out.
    """
    present = [str(path) for path in paths if Path(path).is_file()]
    bad = dict.fromkeys({str(path) for path in paths} - set(present), "absent")
    files = CachedFiles(present, images)
    shapes: dict[str, tuple[int, ...]] = {}

    def check(index: int) -> None:
        try:
            shapes[present[index]] = tuple(files[index].shape)
        except MissingExtraError:
            raise
        except Exception as error:  # a reader may raise anything over a broken file
            bad[present[index]] = f"corrupt: {_reason(error)}"

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for _ in track(pool.map(check, range(len(files))), "Checking images", len(files)):
            pass
    if bad:
        _refuse(bad, len(paths), images.unreadable)
    _refuse_odd_shapes(shapes)
    return np.array([str(path) not in bad for path in paths], dtype=bool)


def read_image(path: Path, size: Sequence[int] | None = None) -> Tensor:
    """One file as (C, ...) float32, as the head of this module says."""
    name = path.name.lower()
    if name.endswith(PHOTOGRAPHS):
        image = _read_photograph(path)
    elif name.endswith(VOLUMES):
        image = _read_volume(path)
    elif name.endswith(ARRAYS):
        image = _read_array(path, size)
    else:
        known = ", ".join((*PHOTOGRAPHS, *VOLUMES, *ARRAYS))
        raise InputError(f"{path.name}: not a kind of image that is read here ({known}).")
    if not bool(torch.isfinite(image).all()):
        raise InputError(f"{path.name} holds values that are not finite.")
    if size is None or tuple(image.shape[1:]) == tuple(size):
        return image
    if image.ndim != len(size) + 1:
        raise InputError(f"{path.name} has {image.ndim - 1} axes, the size {tuple(size)} has {len(size)}.")
    resize = need("monai.transforms", "imaging").Resize(tuple(size), mode="area")
    return torch.as_tensor(resize(image)).contiguous()


def small_motions() -> Augment:
    """The paper's augmentation for brains: up to one voxel, up to one degree, each axis; left-right flips."""
    transforms = need("monai.transforms", "imaging")
    degree = float(np.pi / 180)
    moved = transforms.RandAffine(
        prob=1.0, rotate_range=[degree] * 3, translate_range=[1.0] * 3, mode="bilinear", padding_mode="zeros"
    )
    return transforms.Compose([moved, transforms.RandFlip(prob=0.5, spatial_axis=0)])


def augmented(image: Tensor, augment: Augment) -> Tensor:
    """The image after one random change."""
    # Seeded from torch, whose generator differs between loader workers and epochs; MONAI's own would repeat.
    if hasattr(augment, "set_random_state"):
        augment.set_random_state(seed=int(torch.randint(2**31, ()).item()))
    return torch.as_tensor(np.asarray(augment(image)))


def _item(path: Path, size: tuple[int, ...] | None) -> dict[str, Any]:
    """What a reading depends on, and so the key of its cache entry."""
    path = path.resolve()
    stat = path.stat()
    version = [stat.st_mtime_ns, stat.st_size, RECIPE]
    return {"path": str(path), "size": list(size) if size else None, "version": version}


def _read_item(item: dict[str, Any]) -> Tensor:
    return read_image(Path(item["path"]), item["size"])


def _read_photograph(path: Path) -> Tensor:
    monai_data = need("monai.data", "imaging")
    reader = monai_data.PILReader(converter=_plain_mode, reverse_indexing=False)
    pixels, _ = reader.get_data(reader.read(str(path)))
    largest = float(np.iinfo(pixels.dtype).max) if pixels.dtype.kind == "u" else 65535.0
    image = torch.from_numpy(pixels.astype(np.float32)) / largest
    return image[None] if image.ndim == 2 else image.movedim(-1, 0).contiguous()


def _plain_mode(picture: Any) -> Any:
    """Grey stays grey (8 or 16 bits); palettes, transparency and CMYK become red, green and blue."""
    try:
        picture.load()
    except Exception:
        picture.close()  # Pillow leaves a broken file open
        raise
    return picture if picture.mode == "L" or picture.mode.startswith("I") else picture.convert("RGB")


def _read_volume(path: Path) -> Tensor:
    monai_data = need("monai.data", "imaging")
    reader = monai_data.NibabelReader(as_closest_canonical=True)
    voxels, _ = reader.get_data(reader.read(str(path)))
    image = torch.from_numpy(np.ascontiguousarray(voxels, dtype=np.float32))
    image = image[None] if image.ndim == 3 else image.movedim(-1, 0).contiguous()
    if image.ndim != 4:
        raise InputError(f"{path.name} has {image.ndim - 1} axes; a volume has three, and a fourth for channels.")
    inside = image != 0
    if not bool(inside.any()):
        raise InputError(f"{path.name} is empty: every voxel is zero.")
    mean, deviation = image[inside].mean(), image[inside].std(correction=0)
    return torch.where(inside, (image - mean) / deviation.clamp_min(1e-6), 0.0)


def _read_array(path: Path, size: Sequence[int] | None) -> Tensor:
    values = np.load(path, allow_pickle=False)
    if values.dtype.kind not in "fiub":
        raise InputError(f"{path.name} holds {values.dtype}, not numbers.")
    image = torch.from_numpy(values.astype(np.float32))
    return image[None] if size is not None and image.ndim == len(size) else image


def _reason(error: BaseException) -> str:
    """What the reader itself said, under MONAI's own words around it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _refuse(bad: dict[str, str], total: int, policy: str) -> None:
    absent = sum(reason == "absent" for reason in bad.values())
    names = some([f"{path} ({reason})" for path, reason in sorted(bad.items())])
    text = f"{len(bad)} of {total} images do not read ({absent} absent, {len(bad) - absent} corrupt): {names}."
    if policy == "error":
        raise InputError(f"{text} Mend them, or set unreadable='drop' to leave these rows out.")
    if len(bad) == total:
        raise InputError(f"{text} None is left.")
    warnings.warn(f"{text} Their rows are left out.", RMDNWarning, stacklevel=3)


def _refuse_odd_shapes(shapes: dict[str, tuple[int, ...]]) -> None:
    kinds: dict[tuple[int, ...], list[str]] = {}
    for path, shape in shapes.items():
        kinds.setdefault(shape, []).append(path)
    if len(kinds) > 1:
        common = max(kinds, key=lambda shape: len(kinds[shape]))
        odd = [f"{path} {shape}" for shape, paths in kinds.items() if shape != common for path in paths]
        raise InputError(
            f"{len(odd)} images differ in shape from the other {len(kinds[common])}, which are {common}: "
            f"{some(odd)}. Give a size, and make their channels alike."
        )


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rmdn" / "images"
