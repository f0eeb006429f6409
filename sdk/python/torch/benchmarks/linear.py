"""A quantized linear layer, forward and backward, beside a straight-through one that is written by hand.

    CAGE_PLUGIN_PATH=bin/plugins python sdk/python/torch/benchmarks/linear.py --width 2048 --compile

Each round runs every layer once, one after the other. A column is a share of the hand-written layer's time: the median of the
rounds' ratios, and the ratio of the shortest times. Times are those of the processor in one thread, or of the GPU, and not of
the clock, so that other programs on the machine disturb less. torchao's int4 QAT is compared where torchao is installed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import cage_torch
import torch
from torch import Tensor, nn

QUANTIZERS: dict[str, dict[str, int | float | bool | str]] = {
    "absmax": {}, "quest": {"bits": 4}, "mxfp4": {}, "nvfp4": {}, "lsq": {}, "paretoq": {}, "mseden": {}, "grid": {"step": 0.01},
}  # fmt: skip


class Floor(nn.Linear):
    """The weight is rounded to 4 bits with a scale for each row; gradients pass."""

    def forward(self, x: Tensor) -> Tensor:
        w = self.weight
        with torch.no_grad():
            scale = w.abs().amax(1, keepdim=True) / 7
            error = (w / scale).round().clamp(-7, 7) * scale - w
        return nn.functional.linear(x, w + error, self.bias)


def layers(width: int, device: str) -> dict[str, nn.Module]:
    made: dict[str, nn.Module] = {"by hand": Floor(width, width, bias=False, device=device)}
    for name, settings in QUANTIZERS.items():
        made[name] = nn.Sequential(nn.Linear(width, width, bias=False, device=device))
        cage_torch.quantize_(made[name], name, **settings)
    try:
        from torchao.quantization.qat import IntxFakeQuantizeConfig  # type: ignore[import-not-found,unused-ignore]
        from torchao.quantization.qat.linear import FakeQuantizedLinear  # type: ignore[import-not-found,unused-ignore]

        config = IntxFakeQuantizeConfig(torch.int4, group_size=32)
        made["torchao"] = FakeQuantizedLinear(width, width, bias=False, weight_config=config, device=device)
    except ImportError:
        pass
    return made


def steps(layer: nn.Module, x: Tensor, compiled: bool) -> Callable[[], None]:
    run = torch.compile(layer, fullgraph=True) if compiled else layer
    gradient = torch.randn_like(x)

    def step() -> None:
        run(x).backward(gradient)
        x.grad = None
        for p in layer.parameters():
            p.grad = None

    return step


def timed(step: Callable[[], None], gpu: bool) -> float:
    if not gpu:
        start = time.process_time()
        step()
        return time.process_time() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="names, by commas")
    a = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    gpu = a.device != "cpu"
    x = torch.randn(a.tokens, a.width, device=a.device, requires_grad=True)
    only = ["by hand", *a.only.split(",")]
    runs = {n: steps(m, x, a.compile) for n, m in layers(a.width, a.device).items() if not a.only or n in only}
    for run in runs.values():
        run()
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(a.rounds):
        for name, run in runs.items():
            times[name].append(timed(run, gpu))
    floor = times["by hand"]
    print(f"{a.width} x {a.width}, {a.tokens} tokens, {'compiled' if a.compile else 'eager'}, PyTorch {torch.__version__}, {a.device}")
    print("| layer | shortest, ms | ratio of the shortest | median of ratios |\n|---|---|---|---|")
    for name, own in times.items():
        ratio = statistics.median(t / f for t, f in zip(own, floor))
        print(f"| {name} | {1e3 * min(own):.2f} | {min(own) / min(floor):.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
