import os
import re
import subprocess
import sys

import pytest
import torch
from torch import nn

import rmdn
from rmdn.errors import InputError, MissingExtraError, PlacementError, SettingError
from rmdn.models import CNN2d, CNN3d, ViT2d, ViT3d, build, features

SMALL = {"num_layers": 2, "num_heads": 2, "hidden_size": 16, "mlp_dim": 32, "pre_logits_dim": 12}


def small_vit2d(**options):
    return ViT2d(16, 1, 3, patch_size=8, **{**SMALL, **options})


NETWORKS = {
    "CNN2d": (lambda: CNN2d(16, 1, 3), (1, 16, 16), 84),
    "CNN3d": (lambda: CNN3d(24, 2, 3, pools=(2, 2, 2)), (2, 24, 24, 24), 32),
    "ViT2d": (small_vit2d, (1, 16, 16), 12),
    "ViT3d": (lambda: ViT3d((16, 16, 32), 1, 3, patch_size=8, **SMALL), (1, 16, 16, 32), 12),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_scores_classes_names_its_pre_logits_and_uses_all_its_weights(name):
    make, shape, width = NETWORKS[name]
    network, images = make(), torch.randn(4, *shape)
    scores = network(images)
    assert scores.shape == (4, 3)
    pre_logits = features(network, network.pre_logits_name, images)
    assert pre_logits.shape == (4, width)
    assert pre_logits.min() < 0  # before its activation
    scores.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_refuses_images_of_another_shape(name):
    make, shape, _ = NETWORKS[name]
    network = make()
    for wrong in ((4, shape[0] + 1, *shape[1:]), (4, *shape[:-1], 8), (4, *shape[1:])):
        with pytest.raises(InputError, match=re.escape(str(tuple(wrong)))):
            network(torch.zeros(wrong))


def test_cnn2d_is_the_papers():
    network, images = CNN2d(), torch.randn(3, 1, 32, 32)
    assert features(network, "conv1", images).shape == (3, 16, 28, 28)
    assert features(network, "conv2", images).shape == (3, 32, 24, 24)
    assert [name for name, _ in network.named_children()] == ["conv1", "conv2", "fc1", "fc2"]
    plain = nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.ReLU(), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 24 * 24, 84), nn.ReLU(), nn.Linear(84, 2),
    )  # fmt: skip
    plain.load_state_dict(dict(zip(plain.state_dict(), network.state_dict().values(), strict=True)))
    torch.testing.assert_close(network(images), plain(images))


def test_cnn3d_is_the_papers():
    network, images = CNN3d(), torch.randn(1, 1, 64, 64, 64)
    assert [name for name, _ in network.named_children()] == ["conv1", "conv2", "conv3", "fc1", "fc2"]
    plain = nn.Sequential(
        nn.Conv3d(1, 8, 3), nn.ReLU(), nn.MaxPool3d(2, 2), nn.Conv3d(8, 16, 3), nn.ReLU(), nn.MaxPool3d(2, 2),
        nn.Conv3d(16, 32, 3), nn.ReLU(), nn.MaxPool3d(4, 4), nn.Flatten(),
        nn.Linear(32 * 27, 32), nn.ReLU(), nn.Linear(32, 2),
    )  # fmt: skip
    plain.load_state_dict(dict(zip(plain.state_dict(), network.state_dict().values(), strict=True)))
    torch.testing.assert_close(network(images), plain(images))


def test_vit_agrees_with_monais():
    from monai.networks.nets import ViT

    network, images = small_vit2d(), torch.randn(2, 1, 16, 16)
    nn.init.normal_(network.cls_token)
    monai = ViT(1, 16, 8, hidden_size=16, mlp_dim=32, num_layers=2, num_heads=2, classification=True,
                spatial_dims=2, post_activation="none")  # fmt: skip
    missing, unexpected = monai.load_state_dict(network.state_dict(), strict=False)
    assert all("cross_attn" in key or "classification_head" in key for key in missing)
    assert {key.split(".")[0] for key in unexpected} == {"pre_logits", "head"}
    monai.classification_head = nn.Identity()
    class_token, _ = monai(images)
    torch.testing.assert_close(network(images), network.head(torch.tanh(network.pre_logits(class_token))))


@pytest.mark.parametrize(("network", "layers", "pre_logits"), [(ViT2d, 12, 96), (ViT3d, 6, 768)])
def test_vit_defaults_are_the_papers(network, layers, pre_logits):
    with torch.device("meta"):
        vit = network()
    assert len(vit.blocks) == layers
    assert vit.pre_logits.weight.shape == (pre_logits, 384)
    assert vit.blocks[0].mlp.linear1.weight.shape == (1536, 384)
    assert vit.blocks[0].attn.num_heads == {12: 12, 6: 8}[layers]
    assert vit.patch_embedding.n_patches == {12: 64, 6: 64}[layers]


def test_placements_name_attentions_blocks_and_the_pre_logits():
    assert {variant: rmdn.vit_places(small_vit2d(), variant) for variant in "ABC"} == {
        "A": ["blocks.0.attn", "blocks.1.attn", "pre_logits"],
        "B": ["blocks.0", "blocks.1", "pre_logits"],
        "C": ["pre_logits"],
    }


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: CNN2d(8), "8 x 8 are too small"),
        (lambda: CNN3d(64, pools=(2, 2, 40)), "too small"),
        (lambda: CNN2d((32, 32, 32)), "image_size="),
        (lambda: CNN2d(0), "image_size=0"),
        (lambda: CNN2d(channels=(16,)), "channels="),
        (lambda: CNN3d(pools=(2, 2, 2, 2)), "pools="),
        (lambda: ViT2d(60), "patches of 8"),
        (lambda: ViT2d(hidden_size=100), "hidden_size=100"),
    ],
)
def test_sizes_that_cannot_be_are_named(make, word):
    with pytest.raises(SettingError, match=re.escape(word)):
        make()


def test_vit_without_monai_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "monai.networks.blocks.patchembedding", None)
    with pytest.raises(MissingExtraError, match=r"rmdn\[imaging\]"):
        ViT2d()


def test_the_cnn_needs_the_core_alone():
    code = "import sys; sys.modules['monai'] = None; from rmdn.models import CNN2d; CNN2d(16)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x, scale=1.0):
        return self.b(self.attention(*[self.a(x)[:, None] * scale] * 3)[0][:, 0])


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = Inner()

    def forward(self, x, scale=1.0):
        return self.network(x, scale)


def test_features_are_the_modules_output():
    network, x = Outer(), torch.randn(5, 3)
    expected = network.network.a(x)
    for name in ("network.a", "a"):
        found = features(network, name, x)
        torch.testing.assert_close(found, expected)
        assert not found.requires_grad
    torch.testing.assert_close(features(network, "b", x, scale=2.0), network(x, scale=2.0))


def test_features_keep_the_graph_where_asked():
    network, x = Outer(), torch.randn(5, 3)
    features(network, "a", x, gradient=True).sum().backward()
    torch.testing.assert_close(network.network.a.weight.grad, x.sum(0).expand(4, 3))


def test_features_are_taken_before_what_follows_works_in_place():
    network, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True)), torch.randn(5, 3)
    torch.testing.assert_close(features(network, "0", x), network[0](x))
    features(network, "0", x, gradient=True).sum().backward()
    torch.testing.assert_close(network[0].weight.grad, x.sum(0).expand(4, 3))


def test_features_leave_the_network_as_it_was():
    network = Outer()
    with pytest.raises(RuntimeError):
        features(network, "a", torch.randn(5, 7))
    features(network, "a", torch.randn(5, 3))
    assert not any(module._forward_hooks for module in network.modules())
    assert network.training


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("network.attentoin", "did you mean network.attention"),
        ("attention.out_proj", "was not called"),
        ("attention", "returns a tuple"),
    ],
)
def test_features_that_are_not_there(name, word):
    with pytest.raises(PlacementError, match=word):
        features(Outer(), name, torch.randn(5, 3))


def test_features_of_an_ambiguous_name():
    with pytest.raises(PlacementError, match=r"blocks\.0\.attn, blocks\.1\.attn"):
        features(small_vit2d(), "attn", torch.randn(1, 1, 16, 16))


@pytest.fixture
def users_module(tmp_path, monkeypatch):
    (tmp_path / "users_networks.py").write_text(
        "from torch import nn\n"
        "SIZE = 3\n"
        "class MyNet(nn.Linear):\n"
        "    def __init__(self, width, *, depth=1):\n"
        "        if width > 9: raise ValueError('width is at most 9')\n"
        "        super().__init__(width, 2)\n"
        "def make_net(**options): return MyNet(**options)\n"
        "def make_text(): return 'no network'\n"
    )
    (tmp_path / "users_broken.py").write_text("import a_package_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_build_makes_any_network(users_module):
    assert isinstance(build("rmdn.models.CNN2d", image_size=16, num_classes=5), CNN2d)
    dense = build("monai.networks.nets.DenseNet121", spatial_dims=2, in_channels=1, out_channels=2)
    assert type(dense).__name__ == "DenseNet121"
    for path in ("users_networks:MyNet", "users_networks.MyNet", "users_networks:make_net"):
        assert build(path, width=4).weight.shape == (2, 4)


def test_build_makes_a_transformers_model_from_its_configs_entries():
    options = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    network = build("transformers.ViTForImageClassification", num_labels=5, image_size=16, patch_size=8, **options)
    assert network(torch.zeros(1, 3, 16, 16)).logits.shape == (1, 5)
    with pytest.raises(SettingError, match=r"no argument 'num_label'; did you mean num_labels"):
        build("transformers.ViTForImageClassification", num_label=5)


@pytest.mark.parametrize(
    ("path", "arguments", "word"),
    [
        ("CNN2d", {}, "not an import path"),
        ("users_netwroks.MyNet", {}, "no module 'users_netwroks'"),
        ("users_networks.inner.MyNet", {}, "no module 'users_networks.inner'"),
        ("users_broken:Net", {}, "needs 'a_package_nobody_has'"),
        ("users_networks:MyNte", {}, "did you mean MyNet"),
        ("users_networks:SIZE", {}, "is a int"),
        ("users_networks:make_text", {}, "makes a str"),
        ("users_networks:MyNet", {}, "needs width"),
        ("users_networks:MyNet", {"widht": 4}, "no argument 'widht'; did you mean width"),
        ("users_networks:make_net", {"width": 4, "dept": 1}, "dept"),
        ("users_networks:MyNet", {"width": 10}, "width=10: width is at most 9"),
        ("rmdn.models.CNN2d", {"image_size": 4}, "too small"),
        ("monai.networks.nets.DenseNet121", {"spatial_dims": 2, "in_chanels": 1}, "did you mean in_channels"),
    ],
)
def test_build_says_what_is_wrong(users_module, path, arguments, word):
    with pytest.raises(SettingError, match=re.escape(word)):
        build(path, **arguments)


class NoMonai:
    """An import finder for a machine on which MONAI is not installed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "monai":
            raise ModuleNotFoundError("No module named 'monai'", name="monai")


def test_build_without_monai_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "monai"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NoMonai, *sys.meta_path])
    with pytest.raises(MissingExtraError, match=r"rmdn\[imaging\]"):
        build("monai.networks.nets.DenseNet121")
