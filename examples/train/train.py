"""Train a small neural network on data that it generates, and report how well it does after each epoch.

A program written for Tradewind's small kit: it asks for the parameters of its trial and reports intermediate results.
Without Tradewind around it, it runs with the values of its command line and reports nothing::

    python train.py --learning-rate 0.1 --batch 64 --hidden 32
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

import numpy as np

from tradewind import runtime_api

CLASSES = 5
INPUTS = 12


@dataclass
class Network:
    """One hidden layer: weights and biases of both layers."""

    w1: np.ndarray
    b1: np.ndarray
    w2: np.ndarray
    b2: np.ndarray

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The hidden layer and the probabilities of the classes, shapes (n, hidden) and (n, classes)."""
        hidden = np.maximum(x @ self.w1 + self.b1, 0)
        scores = hidden @ self.w2 + self.b2
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, powers / powers.sum(axis=1, keepdims=True)

    def learn(self, x: np.ndarray, labels: np.ndarray, rate: float) -> float:
        """One step of gradient descent on a batch; returns its cross-entropy."""
        hidden, chance = self.forward(x)
        rows = np.arange(len(labels))
        loss = float(-np.log(chance[rows, labels] + 1e-12).mean())
        slope = chance.copy()
        slope[rows, labels] -= 1
        slope /= len(labels)
        back = (slope @ self.w2.T) * (hidden > 0)
        self.w2 -= rate * (hidden.T @ slope)
        self.b2 -= rate * slope.sum(axis=0)
        self.w1 -= rate * (x.T @ back)
        self.b1 -= rate * back.sum(axis=0)
        return loss


def make_data(samples: int, dtype: str, seed: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Points of five classes that no straight line parts: shapes (samples, 12) and (samples,)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, INPUTS))
    mix = rng.normal(size=(INPUTS, CLASSES))
    bend = rng.normal(size=(INPUTS, CLASSES))
    labels = (np.sin(x @ mix) + 0.6 * np.abs(x @ bend)).argmax(axis=1)
    return x.astype(dtype), labels


def train(args: argparse.Namespace) -> float:
    """Train and report after each epoch; returns the accuracy on points that were not trained on."""
    samples = max(1000, int(args.samples * runtime_api.fraction()))
    x, labels = make_data(samples, args.dtype)
    held = samples // 5
    rng = np.random.default_rng(1)
    network = Network(
        (rng.normal(size=(INPUTS, args.hidden)) * np.sqrt(2 / INPUTS)).astype(args.dtype),
        np.zeros(args.hidden, args.dtype),
        (rng.normal(size=(args.hidden, CLASSES)) * np.sqrt(2 / args.hidden)).astype(args.dtype),
        np.zeros(CLASSES, args.dtype),
    )
    accuracy = 0.0
    started = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        order = rng.permutation(np.arange(held, samples))
        losses = []
        for begin in range(0, len(order), args.batch):
            rows = order[begin : begin + args.batch]
            with np.errstate(over="ignore", invalid="ignore"):  # a loss that is no number is looked for below
                losses.append(network.learn(x[rows], labels[rows], args.learning_rate))
        loss = float(np.mean(losses))
        if not np.isfinite(loss):
            print(f"epoch {epoch}: the loss is no longer a number; the learning rate is too large", file=sys.stderr)
            return 0.0
        _, chance = network.forward(x[:held])
        accuracy = float((chance.argmax(axis=1) == labels[:held]).mean())
        runtime_api.report(step=epoch, loss=loss, accuracy=accuracy)
        print(f"epoch {epoch:3d}  loss {loss:.4f}  accuracy {accuracy:.4f}  {time.perf_counter() - started:.1f} s")
    return accuracy


def main(argv: list[str] | None = None) -> int:
    """Read the trial's parameters, or the command line, and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--samples", type=int, default=60_000)
    known = vars(parser.parse_args([]))
    parser.set_defaults(**{name: value for name, value in runtime_api.parameters().items() if name in known})
    accuracy = train(parser.parse_args(argv))
    if accuracy == 0.0:
        return 1
    runtime_api.output_path("accuracy.txt").write_text(f"{accuracy:.4f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
