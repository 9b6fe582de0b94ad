"""What the networks ask of the size of their images."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from rmdn.errors import InputError, SettingError


def sides(image_size: int | Sequence[int], dims: int) -> tuple[int, ...]:
    """One number for all sides, or one for each, as a tuple of `dims` positive numbers."""
    sizes = (image_size,) * dims if isinstance(image_size, int) else tuple(image_size)
    if len(sizes) != dims or min(sizes) < 1:
        raise SettingError(
            f"image_size={image_size!r} does not describe an image of {dims} dimensions; "
            f"give one positive number or {dims}."
        )
    return sizes


def check_images(images: Tensor, in_channels: int, sizes: tuple[int, ...]) -> None:
    """Refuse a batch of another shape than (B, in_channels, *sizes)."""
    if images.shape[1:] != (in_channels, *sizes) or images.ndim != len(sizes) + 2:
        raise InputError(
            f"The images have shape {tuple(images.shape)}; this network was built for (B, {in_channels}, "
            f"{', '.join(map(str, sizes))}). Resize them, or build it with their image_size and in_channels."
        )
