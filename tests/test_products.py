"""The two products against the plain ones, in all the ways that they are cut into blocks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rmdn.products import cross, subtract_product, subtract_product_

SIZES = {"batch": st.integers(0, 70), "h": st.sampled_from([0, 1, 48, 1000, 4096, 5120]), "p": st.integers(1, 5)}


def drawn(batch, p, h):
    """X (B, p), Z (B, h) and beta (p, h)."""
    make = torch.Generator().manual_seed(1000 * batch + p)
    return tuple(torch.randn(*shape, generator=make, dtype=torch.float64) for shape in ((batch, p), (batch, h), (p, h)))


@settings(deadline=None)
@given(**SIZES)
def test_products_are_the_plain_ones(batch, p, h):
    X, Z, beta = drawn(batch, p, h)
    torch.testing.assert_close(cross(X, Z), X.T @ Z)
    expected = Z - X @ beta
    torch.testing.assert_close(subtract_product(Z, X, beta), expected)
    given_memory = Z.data_ptr()
    assert subtract_product_(Z, X, beta).data_ptr() == given_memory
    torch.testing.assert_close(Z, expected)


@pytest.mark.parametrize("batch", [1, 24, 27])
def test_strided_parts_of_larger_tensors_will_do(batch):
    X, Z, beta = drawn(batch, 3, 8192)
    X, Z, beta = X[:, 1:], Z[:, ::2], beta[1:, ::2]
    torch.testing.assert_close(cross(X, Z), X.T @ Z)
    expected = Z - X @ beta
    torch.testing.assert_close(subtract_product(Z, X, beta), expected)
    torch.testing.assert_close(subtract_product_(Z, X, beta), expected)


@pytest.mark.parametrize("batch", [24, 27])
def test_the_gradient_passes(batch):
    X, Z, beta = drawn(batch, 3, 4096)
    Z.requires_grad_()
    (subtract_product(Z, X, beta) * Z.detach()).sum().backward()
    torch.testing.assert_close(Z.grad, Z.detach())
