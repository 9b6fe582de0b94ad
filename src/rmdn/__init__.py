"""Confounder-free features inside any PyTorch network."""
