"""A user's own loop: own_loop_before.py is without rmdn, own_loop.py with it, three lines apart (see `diff`)."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rmdn
from rmdn.data.synthetic import static

EPOCHS, SEED = int(os.environ.get("EPOCHS", "20")), int(os.environ.get("SEED", "0"))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 5), nn.Conv2d(8, 16, 5)
        self.fc1, self.fc2 = nn.Linear(16 * 5 * 5, 32), nn.Linear(32, 2)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def epoch(model, loader, optimizer=None):
    model.train(optimizer is not None)
    correct = 0
    for x, c, y in loader:  # images, confounders, labels
        scores = model(x, confounders=c, labels=y if model.training else None)
        if optimizer is not None:
            optimizer.zero_grad()
            F.cross_entropy(scores, y).backward()
            optimizer.step()
        correct += (scores.argmax(1) == y).sum().item()
    return correct / len(loader.dataset)


torch.manual_seed(SEED)
data = static(seed=SEED)
train = DataLoader(TensorDataset(*data.train.tensors()), batch_size=64, shuffle=True)
test = DataLoader(TensorDataset(*data.test.tensors()), batch_size=1024)
model = Network()
model = rmdn.deconfound(model, at=["conv1", "conv2", "fc1"], num_confounders=1, num_classes=2, regularization=1e-3)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
for _ in range(EPOCHS):
    epoch(model, train, optimizer)
with torch.no_grad():
    print(f"accuracy {epoch(model, test):.3f}; without the confounder the best is {data.best:.3f}")
