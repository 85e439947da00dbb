"""Computes how heat spreads over a plate: ``heat.py CELLS STEPS SOURCE``."""

from __future__ import annotations

import json
import os
import sys

_SHADES = ("#1b2a6b", "#2f55a4", "#3f8fc4", "#7fc8c9", "#d7e08a", "#f7b34d", "#ee6a32", "#c8201e")


def step_of(plate: list[list[float]]) -> list[list[float]]:
    """Let the heat flow once between neighbours; the edge stays cold."""
    last = len(plate) - 1
    new = [[0.0] * (last + 1) for _ in plate]
    for i in range(1, last):
        above, row, below, to = plate[i - 1], plate[i], plate[i + 1], new[i]
        for j in range(1, last):
            to[j] = row[j] + 0.2 * (above[j] + below[j] + row[j - 1] + row[j + 1] - 4.0 * row[j])
    return new


def picture(plate: list[list[float]]) -> str:
    """Draw the plate as SVG, in at most 60 by 60 fields."""
    size = len(plate)
    each = max(1, -(-size // 60))
    most = max(max(row) for row in plate) or 1.0
    fields = [
        f'<rect x="{j // each}" y="{i // each}" width="1.02" height="1.02" fill="{_shade(plate[i][j] / most)}"/>'
        for i in range(0, size, each)
        for j in range(0, size, each)
    ]
    side = -(-size // each)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {side} {side}" width="480" height="480">'
    return head + "".join(fields) + "</svg>\n"


def _shade(share: float) -> str:
    return _SHADES[min(len(_SHADES) - 1, int(len(_SHADES) * share**0.4))]


def main() -> None:
    """Run the steps, and write a picture and a table."""
    cells, steps, source = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    outputs, metrics = os.environ.get("TRADEWIND_OUTPUTS", "."), os.environ.get("TRADEWIND_METRICS", os.devnull)
    at = {"centre": (cells // 2, cells // 2), "corner": (1, 1), "edge": (1, cells // 2)}[source]
    plate = [[0.0] * cells for _ in range(cells)]
    with open(metrics, "a", encoding="utf-8") as report:
        for step in range(1, steps + 1):
            plate = step_of(plate)
            plate[at[0]][at[1]] = 100.0
            if step % max(1, steps // 100) == 0 or step == steps:
                mean = sum(map(sum, plate)) / cells**2
                report.write(json.dumps({"step": step, "mean_temperature": mean}) + "\n")
                report.flush()
                print(f"step {step} of {steps}: mean temperature {mean:.4f}", flush=True)
    with open(os.path.join(outputs, "plate.svg"), "w", encoding="utf-8") as file:
        file.write(picture(plate))
    with open(os.path.join(outputs, "middle.csv"), "w", encoding="utf-8") as file:
        file.write("cell,temperature\n")
        file.writelines(f"{j},{value:.5f}\n" for j, value in enumerate(plate[cells // 2]))


if __name__ == "__main__":
    main()
