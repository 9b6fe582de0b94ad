"""The paper's vision transformers in 2D and 3D: MONAI's blocks, the pre-logits layer, the classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rmdn.errors import MissingExtraError, SettingError
from rmdn.models.sizes import check_images, sides


class _ViT(nn.Module):
    """Patches, class token, blocks, norm; the class token's features pass `pre_logits`, tanh and `head`."""

    pre_logits_name = "pre_logits"

    def __init__(
        self,
        sizes: tuple[int, ...],
        in_channels: int,
        num_classes: int,
        patch_size: int,
        num_layers: int,
        num_heads: int,
        hidden_size: int,
        mlp_dim: int,
        pre_logits_dim: int,
    ) -> None:
        super().__init__()
        _check_divisible(sizes, patch_size, hidden_size, num_heads)
        try:
            from monai.networks.blocks.patchembedding import PatchEmbeddingBlock
        except ImportError as error:
            raise MissingExtraError("The ViTs are built of MONAI's blocks: pip install 'rmdn[imaging]'.") from error
        self.sizes, self.in_channels = sizes, in_channels
        self.patch_embedding = PatchEmbeddingBlock(
            in_channels, sizes, patch_size, hidden_size, num_heads, proj_type="conv", spatial_dims=len(sizes)
        )
        self.cls_token = nn.Parameter(torch.zeros(1, 1, hidden_size))
        self.blocks = nn.ModuleList(_block(hidden_size, mlp_dim, num_heads) for _ in range(num_layers))
        self.norm = nn.LayerNorm(hidden_size)
        self.pre_logits = nn.Linear(hidden_size, pre_logits_dim)
        self.head = nn.Linear(pre_logits_dim, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores (B, num_classes) of images (B, in_channels, *image_size)."""
        check_images(images, self.in_channels, self.sizes)
        x = self.patch_embedding(images)  # (B, patches, hidden)
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), dim=1)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x[:, 0])  # the class token alone goes on
        scores: Tensor = self.head(torch.tanh(self.pre_logits(x)))
        return scores


class ViT2d(_ViT):
    """The paper's 2D vision transformer; the defaults fit HAM10000's colour images in seven classes."""

    def __init__(
        self,
        image_size: int | Sequence[int] = 64,
        in_channels: int = 3,
        num_classes: int = 7,
        *,
        patch_size: int = 8,
        num_layers: int = 12,
        num_heads: int = 12,
        hidden_size: int = 384,
        mlp_dim: int = 1536,
        pre_logits_dim: int = 96,
    ) -> None:
        shape = (patch_size, num_layers, num_heads, hidden_size, mlp_dim, pre_logits_dim)
        super().__init__(sides(image_size, 2), in_channels, num_classes, *shape)


class ViT3d(_ViT):
    """The paper's 3D vision transformer; the defaults fit ADNI's volumes in two classes."""

    def __init__(
        self,
        image_size: int | Sequence[int] = 64,
        in_channels: int = 1,
        num_classes: int = 2,
        *,
        patch_size: int = 16,
        num_layers: int = 6,
        num_heads: int = 8,
        hidden_size: int = 384,
        mlp_dim: int = 1536,
        pre_logits_dim: int = 768,
    ) -> None:
        shape = (patch_size, num_layers, num_heads, hidden_size, mlp_dim, pre_logits_dim)
        super().__init__(sides(image_size, 3), in_channels, num_classes, *shape)


def _block(hidden_size: int, mlp_dim: int, num_heads: int) -> nn.Module:
    from monai.networks.blocks.transformerblock import TransformerBlock

    block: nn.Module = TransformerBlock(hidden_size, mlp_dim, num_heads)
    # MONAI keeps weights for cross-attention that never runs here; weights without a gradient stop DDP.
    block.cross_attn = block.norm_cross_attn = nn.Identity()
    return block


def _check_divisible(sizes: tuple[int, ...], patch_size: int, hidden_size: int, num_heads: int) -> None:
    if any(side % patch_size for side in sizes):
        raise SettingError(
            f"Images of {' x '.join(map(str, sizes))} cannot be cut into patches of {patch_size} a side; "
            "give an image_size whose sides are multiples of patch_size."
        )
    if hidden_size % num_heads:
        raise SettingError(
            f"hidden_size={hidden_size} cannot be shared among num_heads={num_heads}; give a multiple of it."
        )
