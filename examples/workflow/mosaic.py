"""The programs of the example workflow: a large picture of the Mandelbrot set, made of tiles.

    mosaic.py tile SCENE COLUMN ROW OUT      compute one tile
    mosaic.py smooth IN OUT                  smooth it
    mosaic.py background OUT IN...           the brightness of all tiles together
    mosaic.py correct IN BACKGROUND OUT      bring one tile to that brightness
    mosaic.py add OUT IN...                  put the tiles together, as a PNG picture
    mosaic.py report PICTURE BACKGROUND OUT  say what came out

Nothing but Python's standard library; a tile is a JSON file.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from pathlib import Path


def tile(scene: str, column: str, row: str, out: str) -> None:
    given = json.loads(Path(scene).read_text())
    size, across, steps = given["size"], given["tiles"], given["steps"]
    scale = given["width"] / (size * across)
    left = given["centre"][0] - given["width"] / 2 + int(column) * size * scale
    top = given["centre"][1] - given["width"] / 2 + int(row) * size * scale
    pixels = [[escape(complex(left + x * scale, top + y * scale), steps) for x in range(size)] for y in range(size)]
    write(out, int(column), int(row), pixels)


def escape(point: complex, steps: int) -> float:
    z = 0j
    for step in range(steps):
        z = z * z + point
        if z.real * z.real + z.imag * z.imag > 4.0:
            return 255.0 * step / steps
    return 0.0


def smooth(source: str, out: str) -> None:
    column, row, pixels = read(source)
    size = len(pixels)
    near = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]

    def mean(x: int, y: int) -> float:
        around = [pixels[y + dy][x + dx] for dx, dy in near if 0 <= x + dx < size and 0 <= y + dy < size]
        return sum(around) / len(around)

    write(out, column, row, [[mean(x, y) for x in range(size)] for y in range(size)])


def background(out: str, *sources: str) -> None:
    brightest = max(max(map(max, read(source)[2])) for source in sources)
    Path(out).write_text(json.dumps({"brightest": brightest, "tiles": len(sources)}))


def correct(source: str, level: str, out: str) -> None:
    column, row, pixels = read(source)
    factor = 255.0 / max(1e-9, json.loads(Path(level).read_text())["brightest"])
    write(out, column, row, [[min(255.0, value * factor) for value in line] for line in pixels])


def add(out: str, *sources: str) -> None:
    tiles = [read(source) for source in sources]
    size = len(tiles[0][2])
    across = 1 + max(column for column, _, _ in tiles)
    down = 1 + max(row for _, row, _ in tiles)
    lines = [bytearray(across * size) for _ in range(down * size)]
    for column, row, pixels in tiles:
        for y, line in enumerate(pixels):
            lines[row * size + y][column * size : (column + 1) * size] = bytes(round(value) for value in line)
    Path(out).write_bytes(png(across * size, down * size, b"".join(b"\0" + bytes(line) for line in lines)))


def png(width: int, height: int, raw: bytes) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def report(picture: str, level: str, out: str) -> None:
    content = Path(picture).read_bytes()
    width, height = struct.unpack(">II", content[16:24])
    tiles = json.loads(Path(level).read_text())["tiles"]
    Path(out).write_text(f"{width} x {height} pixels of {tiles} tiles, {len(content)} bytes\n")


def read(path: str) -> tuple[int, int, list[list[float]]]:
    found = json.loads(Path(path).read_text())
    return found["column"], found["row"], found["pixels"]


def write(path: str, column: int, row: int, pixels: list[list[float]]) -> None:
    Path(path).write_text(json.dumps({"column": column, "row": row, "pixels": pixels}))


if __name__ == "__main__":
    {each.__name__: each for each in (tile, smooth, background, correct, add, report)}[sys.argv[1]](*sys.argv[2:])
