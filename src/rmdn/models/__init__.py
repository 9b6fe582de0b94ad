"""The paper's four networks, any other network by its import path, and the features inside any of them."""

from rmdn.models.cnn import CNN2d, CNN3d
from rmdn.models.importing import build
from rmdn.models.probe import features
from rmdn.models.vit import ViT2d, ViT3d

__all__ = ["CNN2d", "CNN3d", "ViT2d", "ViT3d", "build", "features"]
