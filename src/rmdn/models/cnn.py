"""The paper's convolutional networks in 2D and 3D: convolutions, the pre-logits layer, the classes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from rmdn.errors import SettingError
from rmdn.models.sizes import check_images, sides


class CNN2d(nn.Module):
    """Two convolutions of 5 x 5 without padding, the pre-logits layer `fc1` and the class scores `fc2`.

    With 32 x 32 images, the features of `conv1` are 16 x 28 x 28 and those of `conv2` are 32 x 24 x 24.
    """

    pre_logits_name = "fc1"

    def __init__(
        self,
        image_size: int | Sequence[int] = 32,
        in_channels: int = 1,
        num_classes: int = 2,
        *,
        channels: tuple[int, int] = (16, 32),
        hidden_size: int = 84,
    ) -> None:
        super().__init__()
        _check_length("channels", channels, 2)
        self.sizes, self.in_channels = sides(image_size, 2), in_channels
        self.conv1 = nn.Conv2d(in_channels, channels[0], 5)
        self.conv2 = nn.Conv2d(channels[0], channels[1], 5)
        pixels = _pixels_left(self.sizes, kernel=5, pools=(1, 1))
        self.fc1 = nn.Linear(channels[1] * pixels, hidden_size)
        self.fc2 = nn.Linear(hidden_size, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores (B, num_classes) of images (B, in_channels, height, width)."""
        check_images(images, self.in_channels, self.sizes)
        x = F.relu(self.conv1(images))
        x = F.relu(self.conv2(x))
        x = F.relu(self.fc1(x.flatten(1)))
        scores: Tensor = self.fc2(x)
        return scores


class CNN3d(nn.Module):
    """Three unpadded convolutions of 3 x 3 x 3, each with max pooling, then `fc1` (pre-logits) and `fc2`."""

    pre_logits_name = "fc1"

    def __init__(
        self,
        image_size: int | Sequence[int] = 64,
        in_channels: int = 1,
        num_classes: int = 2,
        *,
        channels: tuple[int, int, int] = (8, 16, 32),
        pools: tuple[int, int, int] = (2, 2, 4),
        hidden_size: int = 32,
    ) -> None:
        super().__init__()
        _check_length("channels", channels, 3)
        _check_length("pools", pools, 3)
        self.sizes, self.in_channels, self.pools = sides(image_size, 3), in_channels, pools
        self.conv1 = nn.Conv3d(in_channels, channels[0], 3)
        self.conv2 = nn.Conv3d(channels[0], channels[1], 3)
        self.conv3 = nn.Conv3d(channels[1], channels[2], 3)
        voxels = _pixels_left(self.sizes, kernel=3, pools=pools)
        self.fc1 = nn.Linear(channels[2] * voxels, hidden_size)
        self.fc2 = nn.Linear(hidden_size, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores (B, num_classes) of images (B, in_channels, depth, height, width)."""
        check_images(images, self.in_channels, self.sizes)
        # ReLU and max pooling commute; after the pooling, ReLU has less to do.
        x = F.relu(F.max_pool3d(self.conv1(images), self.pools[0]))
        x = F.relu(F.max_pool3d(self.conv2(x), self.pools[1]))
        x = F.relu(F.max_pool3d(self.conv3(x), self.pools[2]))
        x = F.relu(self.fc1(x.flatten(1)))
        scores: Tensor = self.fc2(x)
        return scores


def _check_length(name: str, values: Sequence[int], length: int) -> None:
    if len(values) != length or min(values) < 1:
        raise SettingError(f"{name}={values!r} does not fit; give {length} positive numbers.")


def _pixels_left(sizes: tuple[int, ...], kernel: int, pools: Sequence[int]) -> int:
    """How many pixels (voxels) of an image remain after unpadded convolutions, each with its pooling."""
    left = sizes
    for pool in pools:
        left = tuple((side - kernel + 1) // pool for side in left)
        if min(left) < 1:
            raise SettingError(
                f"Images of {' x '.join(map(str, sizes))} are too small for {len(pools)} convolutions of "
                f"{kernel} pixels a side with poolings of {pools}: none is left. Give a larger image_size."
            )
    return math.prod(left)
