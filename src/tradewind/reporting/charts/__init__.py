"""Charts as plain documents, drawn by one library in pages and by matplotlib for PNG files."""

from pathlib import Path

ASSETS = Path(__file__).parent / "assets"
"""Scripts, the library and the styles of charts."""
