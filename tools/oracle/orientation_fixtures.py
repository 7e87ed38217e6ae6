"""Writes crates/data/tests/fixtures/orientation/: photographs as cameras store them, and what Pillow makes of them.

    python tools/oracle/orientation_fixtures.py

Needs pillow (made with Pillow 13.0.0).

One picture in all eight orientations of EXIF, as JPEG, PNG, WebP and TIFF, the JPEGs with EXIF data of either byte order.
expected.json: {file name: [[width, height, CRC-32] as stored, [width, height, CRC-32] upright]} of the RGB bytes, upright by
Pillow's ImageOps.exif_transpose.
"""

import io
import json
import struct
import zlib
from pathlib import Path

from PIL import Image, ImageOps

OUT = Path(__file__).resolve().parents[2] / "crates/data/tests/fixtures/orientation"
WIDTH, HEIGHT = 21, 13
expected = {}


def picture():
    """No symmetry that a wrong turn could hide behind."""
    pixels = [(x * 12, y * 19, (x * x + 3 * y) % 256) for y in range(HEIGHT) for x in range(WIDTH)]
    image = Image.new("RGB", (WIDTH, HEIGHT))
    image.putdata(pixels)
    return image


def exif(orientation, order):
    """A directory with a width, which is no orientation, and the orientation."""
    entries = b"".join(struct.pack(order + "HHIHH", tag, 3, 1, n, 0) for tag, n in [(0x100, WIDTH), (0x112, orientation)])
    start = b"II*\0" if order == "<" else b"MM\0*"
    return b"Exif\0\0" + start + struct.pack(order + "IH", 8, 2) + entries + struct.pack(order + "I", 0)


def summary(image):
    rgb = image.convert("RGB")
    return [rgb.width, rgb.height, zlib.crc32(rgb.tobytes())]


def put(name, data, stored=None):
    (OUT / name).write_bytes(data)
    image = Image.open(io.BytesIO(data))
    upright = summary(ImageOps.exif_transpose(image))
    expected[name] = [summary(stored or Image.open(io.BytesIO(data))), upright]


def saved(format, gray=False, **options):
    buffer = io.BytesIO()
    (picture().convert("L") if gray else picture()).save(buffer, format, **options)
    return buffer.getvalue()


def behind_the_image(png):
    """Moves the EXIF chunk of a PNG to its end, where the standard allows it too."""
    at = png.index(b"eXIf") - 4
    length = 12 + struct.unpack(">I", png[at : at + 4])[0]
    chunk, rest = png[at : at + length], png[:at] + png[at + length :]
    end = rest.index(b"IEND") - 4
    return rest[:end] + chunk + rest[end:]


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    for n in range(1, 9):
        order = "<>"[n % 2]
        put(f"{n}.jpg", saved("JPEG", quality=90, exif=exif(n, order)))
        put(f"{n}-progressive.jpg", saved("JPEG", quality=80, progressive=True, exif=exif(n, "<>"[1 - n % 2])))
        put(f"{n}.png", saved("PNG", exif=exif(n, order)))
        put(f"{n}.webp", saved("WEBP", lossless=True, exif=exif(n, order)))
        # Pillow turns a TIFF whenever it loads one, so what is stored is the picture.
        put(f"{n}.tif", saved("TIFF", tiffinfo={274: n}), stored=picture())
    put("behind.png", behind_the_image(saved("PNG", exif=exif(6, "<"))))
    put("gray.jpg", saved("JPEG", gray=True, exif=exif(8, ">")))
    # Values that mean nothing: the picture stays as it is.
    put("zero.jpg", saved("JPEG", exif=exif(0, "<")))
    put("nine.png", saved("PNG", exif=exif(9, ">")))
    put("none.jpg", saved("JPEG"))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in expected.items())
    (OUT / "expected.json").write_text(f"{{\n{lines}\n}}\n")
    print(len(expected), "files,", sum(f.stat().st_size for f in OUT.iterdir()), "bytes")
