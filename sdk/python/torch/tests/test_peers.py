"""Quantizers and optimizers beside those of PyTorch, torchao and compressed-tensors, on random tensors.

Where rounding errors of 10⁻⁷ decide, because a number lies halfway between two levels, each side may go its way; `ties` says so.
"""

from __future__ import annotations

import types

import pytest
import torch
from cage_torch import Quantizer, optimizers
from cage_torch.plugins import start


def made(plugin, x, training=False, **settings):
    q = Quantizer(start(plugin, "quantizer"), "weight", "w", tuple(x.shape), settings, steps=1)
    if not q._ready:
        q.start(x.detach().float())
    return q.train(training)


def draws(dtype=torch.float32):
    """Normal numbers, ranges over many powers of two, small ones, many halfway between levels, and zeros."""
    r = torch.Generator().manual_seed(5)
    for shape in ((64, 128), (3, 256), (17, 32)):
        x = torch.randn(shape, generator=r)
        zeros = x.clone()
        zeros[::2] = 0
        for y in (x, x * (3 * torch.randn(shape, generator=r)).exp(), x * 1e-6, (x * 8).round() / 8, zeros):
            yield y.to(dtype)


def ties(got, want, x):
    """Whether x lies halfway between got and want wherever they differ by more than rounding errors."""
    middle, x = (got + want) / 2, x.to(torch.float32)
    near = (got - want).abs() <= 2e-7 * want.abs()
    return near | ((x - middle).abs() <= 4e-7 * x.abs())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rule, mode", [("ocp", "FLOOR"), ("ceil", "RCEIL"), ("round", "EVEN")])
def test_mxfp4_of_torchao(rule, mode, dtype):
    """Equal. Blocks of less than 2⁻¹²⁶·4 are not compared: torchao's scales are no subnormal numbers."""
    mx = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")
    config = pytest.importorskip("torchao.prototype.mx_formats.config")
    for x in draws(dtype):
        mode_of = config.ScaleCalculationMode[mode]
        want = mx.MXTensor.to_mx(x, torch.float4_e2m1fn_x2, 32, scaling_mode=mode_of).dequantize(torch.float32)
        assert torch.equal(made("mxfp4", x, scale_rule=rule).quantized(x), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nvfp4_of_torchao(dtype):
    """Equal but for ties, as torchao multiplies by a reciprocal, and for blocks below 2⁻⁶ of the largest scale's 448: torchao's scales
    are no subnormal numbers of E4M3, either."""
    nv = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor")
    differ = 0
    for x in draws(dtype):
        scale = nv.per_tensor_amax_to_scale(x.float().abs().max())
        want = nv.NVFP4Tensor.to_nvfp4(x, per_tensor_scale=scale).dequantize(torch.float32)
        got = made("nvfp4", x).quantized(x)
        block = x.float().reshape(-1, 16).abs().amax(1, keepdim=True) / 6 / scale
        compared = (block >= 2.0**-6).expand(-1, 16).reshape(x.shape)
        assert ties(got, want, x)[compared].all()
        differ += int((got != want)[compared].sum())
    assert differ <= (0 if dtype == torch.float32 else 100)


@pytest.mark.parametrize("group", [32, 128])
def test_int4_of_torchao(group):
    """Values are equal but for ties; the largest number of a group is one. torchao's gradients are 0 for the codes −8 and 7."""
    qat = pytest.importorskip("torchao.quantization.qat")
    for x in draws():
        if x.shape[1] % group:
            continue
        theirs, own, dy = x.clone().requires_grad_(), x.clone().requires_grad_(), torch.randn_like(x)
        want = qat.IntxFakeQuantizer(qat.IntxFakeQuantizeConfig(torch.int4, group_size=group))(theirs)
        got = made("absmax", x, True, grid="full", granularity="group", group=group)(own)
        assert ties(got, want, x).all()
        want.backward(dy)
        got.backward(dy)
        torch.testing.assert_close(own.grad, dy, rtol=0, atol=0)
        scale = x.reshape(-1, group).abs().amax(1, keepdim=True) / 7.5
        inside = ((x.reshape(-1, group) / scale).abs() < 6.499).reshape(x.shape)  # and not in a group of zeros
        assert ((theirs.grad - dy).abs() <= 2e-7 * dy.abs())[inside].all()


def compressed(x, **settings):
    """A weight quantized by compressed-tensors."""
    q = pytest.importorskip("compressed_tensors.quantization")
    from compressed_tensors.quantization.lifecycle.forward import fake_quantize
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    args = q.QuantizationArgs(symmetric=True, dynamic=False, **settings)
    blocks = x.reshape(x.shape[0], -1, args.group_size or x.shape[1])
    whole = generate_gparam(x.min(), x.max()) if args.strategy == "tensor_group" else None
    scale, zero = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args, global_scale=whole)
    return fake_quantize(x, scale, zero, args, global_scale=whole)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("group", [None, 32])
def test_integers_of_compressed_tensors(bits, group):
    for x in draws():
        settings = {"granularity": "row"} if group is None else {"granularity": "group", "group": group}
        got = made("absmax", x, bits=bits, grid="full", **settings).quantized(x)
        want = compressed(x, num_bits=bits, type="int", strategy="group" if group else "channel", group_size=group)
        assert ties(got, want, x).all()


def test_nvfp4_of_compressed_tensors():
    """Their scale of the tensor is G = 2688/max, that of a block is divided by it: scale_form = "encode"."""
    for x in draws():
        got = made("nvfp4", x, scale_form="encode").quantized(x)
        fp8 = torch.float8_e4m3fn
        want = compressed(x, num_bits=4, type="float", strategy="tensor_group", group_size=16, scale_dtype=fp8, zp_dtype=fp8)
        assert ties(got, want, x).all()


def test_mxfp4_of_compressed_tensors():
    """Their scale follows from the maximum rounded to two significant bits: scale_rule = "round"."""
    for x in draws():
        got = made("mxfp4", x, scale_rule="round").quantized(x)
        want = compressed(x, num_bits=4, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8, zp_dtype=torch.uint8)
        assert torch.equal(got, want)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_lsq_of_pytorch(bits):
    """PyTorch has no gradient where rounding leaves the grid, LSQ's paper beyond the last level; no number lies between."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for x in draws():
        q = made("lsq", x, True, bits=bits)
        step = q.trained_step.detach().clone().reshape(1).requires_grad_()
        r = x / step.detach()
        x = torch.where((r >= high) & (r < high + 0.51) | (r <= low) & (r > low - 0.51), 0.0, x)
        theirs, own, dy = x.clone().requires_grad_(), x.clone().requires_grad_(), torch.randn_like(x)
        factor = (x.numel() * high) ** -0.5
        want = torch._fake_quantize_learnable_per_tensor_affine(theirs, step, torch.zeros(1), low, high, factor)
        got = q(own)
        want.backward(dy)
        got.backward(dy)
        torch.testing.assert_close(got, want, rtol=2e-7, atol=0)
        torch.testing.assert_close(own.grad, theirs.grad, rtol=0, atol=0)
        most = factor * ((x / step.detach()).abs().clamp(max=2.0**bits) * dy.abs()).sum()  # of a sum of r − round(r)
        assert (q.trained_step.grad.reshape(1) - step.grad).abs() <= 2e-7 * most


@pytest.mark.parametrize("bits", [3, 8])
def test_grid_of_pytorch(bits):
    for x in draws():
        theirs, own, dy = x.clone().requires_grad_(), x.clone().requires_grad_(), torch.randn_like(x)
        want = torch.fake_quantize_per_tensor_affine(theirs, 0.03125, 0, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        got = made("grid", x, True, step=0.03125, bits=bits)(own)
        assert torch.equal(got, want)
        got.backward(dy)
        assert torch.equal(own.grad, dy)


SHAPES = [(24, 16), (7, 33), (64, 64), (40,)]


def beside(mine, theirs, shape, steps=25):
    """The largest difference after each of some steps with random gradients, as a share of the largest weight."""
    r = torch.Generator().manual_seed(sum(shape))
    a = torch.nn.Parameter(torch.randn(shape, generator=r))
    b = torch.nn.Parameter(a.detach().clone())
    mine, theirs, most = mine([a]), theirs([b]), 0.0
    constant = torch.randn(shape, generator=r)
    for i in range(steps):
        g = (constant + torch.randn(shape, generator=r)) * 10.0 ** (i % 3 - 1)
        for p, o in ((a, mine), (b, theirs)):
            p.grad = g.clone()
            o.step()
        most = max(most, ((a - b).abs().max() / b.abs().max()).item())
    return most


@pytest.mark.parametrize("shape", SHAPES)
def test_adamw_of_pytorch(shape):
    assert beside(
        lambda p: optimizers.load("adamw", p, lr=1e-2, weight_decay=0.1, beta1=0.9, beta2=0.95, eps=1e-8),
        lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1, betas=(0.9, 0.95), eps=1e-8), shape) <= 1e-6  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.8, "dampening": 0.3}])
def test_sgd_of_pytorch(settings, shape):
    assert beside(
        lambda p: optimizers.load("sgd", p, lr=1e-2, l2=0.01, **settings),
        lambda p: torch.optim.SGD(p, lr=1e-2, weight_decay=0.01, **settings), shape) <= 1e-6  # fmt: skip


@pytest.mark.parametrize("shape", [s for s in SHAPES if len(s) == 2])
@pytest.mark.parametrize("variant, name, lr", [("rms_match", "match_rms_adamw", 1e-2), ("original", "original", 0.02)])
def test_muon_of_pytorch(variant, name, lr, shape, monkeypatch):
    """torch.optim.Muon orthogonalizes in bfloat16, with an error of some 10⁻²; in float32 it is this one."""

    def theirs(p):
        return torch.optim.Muon(p, lr=lr, weight_decay=0.1, adjust_lr_fn=name)

    def mine(p):
        return optimizers.load("muon", p, lr=lr, weight_decay=0.1, variant=variant)

    assert 1e-4 < beside(mine, theirs, shape) < 3e-2
    single = types.SimpleNamespace(**{**vars(torch), "bfloat16": torch.float32})
    monkeypatch.setattr("torch.optim._muon.torch", single)
    assert beside(mine, theirs, shape) <= 4e-6
