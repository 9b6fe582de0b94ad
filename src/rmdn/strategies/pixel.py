"""Pixel-space MDN: what confounders explain of each pixel is taken out of the images before any network sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rmdn import recursion
from rmdn.design import Columns, confounder_columns, label_columns, refuse_missing
from rmdn.errors import UsageError
from rmdn.products import cross, subtract_product
from rmdn.strategies.base import Batch, StageData, Strategy, Wrapper, check_batch, count_classes

if TYPE_CHECKING:
    from lightning.fabric import Fabric

ROWS = 32  # images at a time in float64


class Pixel(Wrapper):
    """Least squares of every pixel on labels, confounders and ones; confounders and ones are subtracted from all images.

    The coefficients come from training rows alone, in one pass at a stage's start, of which two sums are kept: X'X (p, p)
    and X'Z (p, pixels). The sums go on over the stages.

    Args:
        base: how the network learns from what is left; plain training by default.
    """

    def __init__(self, base: Strategy | None = None) -> None:
        super().__init__(base)
        self.A: Tensor | None = None  # (p, p) float64
        self.G: Tensor | None = None  # (p, pixels) float64
        self.beta: Tensor | None = None  # (c + 1, pixels): of what is subtracted

    def setup(self, network: nn.Module, fabric: Fabric, sample: Batch) -> None:
        """The columns of the design."""
        super().setup(network, fabric, sample)
        classes, _ = count_classes(network, sample)
        self.columns = Columns(sample.confounders.shape[1], classes)

    def begin_stage(self, network: nn.Module, data: StageData) -> None:
        """Add the stage's rows to the sums, and solve."""
        A, G = self.sums(data)
        if self.A is not None and self.G is not None:
            A, G = A + self.A, G.add_(self.G)
        self.A, self.G = A, G
        self.beta = recursion.solve(A, G)[self.columns.labels :].float()
        super().begin_stage(network, data)

    def sums(self, data: StageData) -> tuple[Tensor, Tensor]:
        """X'X (p, p) and X'Z (p, pixels) of a stage's training rows, both float64."""
        A, G = torch.zeros(()), torch.zeros(())
        for batch in map(self.base.prepare, data.raw()):
            check_batch(batch)
            X = [label_columns(batch.labels, self.columns, len(batch.labels)), self._removed(batch.confounders)]
            for x, images in zip(torch.cat(X, dim=1).split(ROWS), batch.images.split(ROWS), strict=True):
                A, G = A.to(x) + x.mT @ x, G.to(x) + cross(x, images.flatten(1).double())
        return A, G

    def _removed(self, confounders: Tensor) -> Tensor:
        """Confounders and ones. (B, c + 1) float64"""
        c = confounder_columns(confounders, self.columns, len(confounders))
        refuse_missing(c, self.columns.names[self.columns.labels : -1])
        return torch.cat([c, c.new_ones(len(c), 1)], dim=1)

    def prepare(self, batch: Batch) -> Batch:
        """The batch with residuals for images."""
        batch = super().prepare(batch)
        if self.beta is None:
            raise UsageError("Pixel has no coefficients yet; they come from the training rows, in begin_stage.")
        check_batch(batch)
        images = batch.images.to(torch.promote_types(batch.images.dtype, self.beta.dtype))
        left = subtract_product(images.flatten(1), self._removed(batch.confounders).to(images.dtype), self.beta)
        return batch._replace(images=left.view(images.shape))

    def state_dict(self) -> dict[str, Any]:
        """The sums and the coefficients."""
        return {**super().state_dict(), "A": self.A, "G": self.G, "beta": self.beta}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take them up."""
        super().load_state_dict(state)
        self.A, self.G, self.beta = state["A"], state["G"], state["beta"]
