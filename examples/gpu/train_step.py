"""Take training steps of a small transformer on one GPU, and report how many samples it learns from in a second.

The parameters of its trial are the precision, the batch, the compiler and the optimiser's fused kernel. A setting that
makes the loss no number, or that takes more memory than there is, fails its trial. Without Tradewind around it, the
words of the command line count::

    python train_step.py --precision bfloat16 --batch 64 --compile default
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
from typing import Any

from tradewind import runtime_api

WORDS, LENGTH, WIDTH, LAYERS, HEADS = 8192, 256, 512, 6, 8
"""Size of the vocabulary, of a sample, and of the network."""


def make_network(torch: Any) -> Any:
    """A transformer that says the next word at each place."""
    nn = torch.nn

    class Network(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
            self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Parameter(torch.zeros(LENGTH, WIDTH))
            self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
            self.head = nn.Linear(WIDTH, WORDS)
            self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

        def forward(self, text: Any) -> Any:
            return self.head(self.layers(self.words(text) + self.places, mask=self.mask, is_causal=True))

    return Network()


def train(torch: Any, args: argparse.Namespace) -> int:
    """Warm up, then take steps for some seconds; the exit code."""
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision != "float32"
    half = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(args.precision)
    network = make_network(torch).to(args.device)
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-4, fused=args.fused == "yes")
    scaler = torch.amp.GradScaler(args.device, enabled=half is torch.float16)
    # Words that follow from those before them, so that there is something to learn.
    first = torch.randint(WORDS, (args.batch, 1), device=args.device)
    text = (first + 7 * torch.arange(LENGTH + 1, device=args.device)) % WORDS

    def step() -> Any:
        cast = contextlib.nullcontext() if half is None else torch.autocast(args.device, dtype=half)
        with cast:
            said = network(text[:, :-1])
            loss = torch.nn.functional.cross_entropy(said.float().reshape(-1, WORDS), text[:, 1:].reshape(-1))
        optimiser.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        return loss.detach()

    if args.compile != "no":
        network = torch.compile(network, mode=args.compile)
    wait = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    for _ in range(args.warm_up):
        loss = step()
    wait()
    steps, began = 0, time.perf_counter()
    while (seconds := time.perf_counter() - began) < args.seconds or not steps:
        loss = step()
        steps += 1
        if steps % 10 == 0:
            wait()  # else the processor runs ahead of the device
    wait()
    seconds, value = time.perf_counter() - began, float(loss)
    if not math.isfinite(value):
        print(f"the loss is no number with {args.precision}", file=sys.stderr)
        return 1
    memory = torch.cuda.max_memory_allocated() / 2**30 if args.device == "cuda" else 0.0
    runtime_api.report(samples_per_second=steps * args.batch / seconds, loss=value, memory_gib=memory)
    print(f"{steps} steps of {args.batch} in {seconds:.2f} s, loss {value:.3f}, {memory:.2f} GiB")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Read the trial's parameters, or the command line, and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", default="bfloat16", choices=["float32", "tf32", "bfloat16", "float16"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--compile", default="no", choices=["no", "default", "reduce-overhead"])
    parser.add_argument("--fused", default="yes", choices=["no", "yes"])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    known = vars(parser.parse_args([]))
    parser.set_defaults(**{name: value for name, value in runtime_api.parameters().items() if name in known})
    args = parser.parse_args(argv)
    try:
        import torch
    except ImportError:
        print("this example needs PyTorch: pip install torch", file=sys.stderr)
        return 3
    if args.device == "cuda" and not torch.cuda.is_available():
        print("PyTorch sees no GPU here: tradewind doctor says which there are", file=sys.stderr)
        return 3
    try:
        return train(torch, args)
    except torch.cuda.OutOfMemoryError:
        print(f"a batch of {args.batch} with {args.precision} takes more memory than the GPU has", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
