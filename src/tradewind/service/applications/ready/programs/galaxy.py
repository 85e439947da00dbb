"""Moves the stars of a galaxy, and draws where they end: ``galaxy.py STARS STEPS PROCESSES``."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import struct
import sys
import zlib
from collections.abc import Sequence

Star = tuple[float, float, float, float]
"""Place and speed: x, y, vx, vy."""

SIDE = 240
"""Pixels along an edge of the picture."""


def begin(stars: int, seed: int = 1) -> list[Star]:
    """Place stars on a disc, each at the speed of its circle."""
    chance = random.Random(seed)  # noqa: S311  (no secret)
    found: list[Star] = []
    for _ in range(stars):
        radius, angle = math.sqrt(chance.random()), chance.uniform(0, 2 * math.pi)
        speed = 0.6 * math.sqrt(radius)
        x, y = radius * math.cos(angle), radius * math.sin(angle)
        found.append((x, y, -speed * math.sin(angle), speed * math.cos(angle)))
    return found


def move(part: tuple[Sequence[Star], int, int]) -> list[Star]:
    """Move some of the stars by one step, each pulled by all."""
    stars, first, last = part
    moved: list[Star] = []
    for x, y, vx, vy in stars[first:last]:
        ax = ay = 0.0
        for ox, oy, _, _ in stars:
            dx, dy = ox - x, oy - y
            pull = (dx * dx + dy * dy + 0.01) ** -1.5
            ax += dx * pull
            ay += dy * pull
        vx += 0.01 * ax / len(stars)
        vy += 0.01 * ay / len(stars)
        moved.append((x + 0.01 * vx, y + 0.01 * vy, vx, vy))
    return moved


def picture(stars: Sequence[Star]) -> bytes:
    """Draw the stars as a PNG in shades of blue."""
    light = [[0] * SIDE for _ in range(SIDE)]
    for x, y, _, _ in stars:
        column, line = int((x + 1.3) / 2.6 * SIDE), int((y + 1.3) / 2.6 * SIDE)
        if 0 <= column < SIDE and 0 <= line < SIDE:
            light[line][column] += 90
    pixels = b"".join(
        b"\0" + b"".join(bytes((min(255, v), min(255, v), min(255, 30 + v))) for v in row) for row in light
    )
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(pixels)),
        (b"IEND", b""),
    )
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + body


def main() -> None:
    """Run the simulation, and write a picture, a table and a report."""
    count, steps, processes = (int(word) for word in sys.argv[1:4])
    outputs, metrics = os.environ.get("TRADEWIND_OUTPUTS", "."), os.environ.get("TRADEWIND_METRICS", os.devnull)
    stars = begin(count)
    bounds = [count * part // processes for part in range(processes + 1)]
    lines = ["step,mean_distance,mean_speed"]
    with multiprocessing.Pool(processes) as pool, open(metrics, "a", encoding="utf-8") as report:
        for step in range(1, steps + 1):
            parts = [(stars, first, last) for first, last in zip(bounds, bounds[1:], strict=False)]
            stars = [star for part in pool.map(move, parts) for star in part]
            distance = sum(math.hypot(x, y) for x, y, _, _ in stars) / count
            speed = sum(math.hypot(vx, vy) for _, _, vx, vy in stars) / count
            report.write(json.dumps({"step": step, "mean_distance": distance, "mean_speed": speed}) + "\n")
            report.flush()
            lines.append(f"{step},{distance:.6f},{speed:.6f}")
            print(f"step {step} of {steps}: mean distance {distance:.4f}", flush=True)
    with open(os.path.join(outputs, "galaxy.png"), "wb") as file:
        file.write(picture(stars))
    with open(os.path.join(outputs, "galaxy.csv"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    with open(os.path.join(outputs, "report.md"), "w", encoding="utf-8") as file:
        file.write(f"# {count} stars after {steps} steps\n\n")
        file.write(f"Their mean distance from the middle is **{distance:.4f}**, their mean speed **{speed:.4f}**.\n\n")
        file.write("- `galaxy.png`: where they are\n- `galaxy.csv`: distance and speed of each step\n")


if __name__ == "__main__":
    main()
