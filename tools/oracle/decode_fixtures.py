"""Writes crates/data/tests/fixtures/decode/: tiny image files of every kind, and what Pillow makes of them.

    python tools/oracle/decode_fixtures.py

Needs pillow and numpy (made with Pillow 13.0.0, libjpeg-turbo 3.2.0, libwebp 1.6.0).

expected.json: {file name: [width, height, CRC-32 of the RGB bytes]}.
real_data.json: {data set: [files, CRC-32 of the RGB bytes of all its files in order]}, for the JPEG sets in ../shared/data (or
DINO_VMF_TEST_DATA), where they are there; without them the file is left as it is.
"""

import io
import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

OUT = Path(__file__).resolve().parents[2] / "crates/data/tests/fixtures/decode"
expected = {}


def picture(width, height, seed=0):
    """A little of everything: slopes, a hard edge, colours."""
    y, x = np.mgrid[0:height, 0:width].astype(float)
    r = 127 + 120 * np.sin(0.35 * x + 0.11 * y + seed)
    g = 127 + 120 * np.cos(0.23 * y - 0.05 * x)
    b = np.where((x - width / 2) ** 2 + (y - height / 2) ** 2 < (min(width, height) / 3) ** 2, 230, 30 + 2 * x)
    return Image.fromarray(np.clip(np.stack([r, g, b], -1), 0, 255).astype(np.uint8), "RGB")


def put(name, data, rgb=None):
    (OUT / name).write_bytes(data)
    rgb = rgb or Image.open(io.BytesIO(data)).convert("RGB")
    expected[name] = [rgb.width, rgb.height, zlib.crc32(rgb.tobytes())]


def save(name, image, format, **options):
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    put(name, buffer.getvalue())


def jpegs():
    for name, subsampling in [("444", 0), ("422", 1), ("420", 2)]:
        save(f"baseline-{name}.jpg", picture(29, 23), "JPEG", quality=85, subsampling=subsampling)
        save(f"progressive-{name}.jpg", picture(30, 21), "JPEG", quality=70, subsampling=subsampling, progressive=True)
    save("gray.jpg", picture(19, 26).convert("L"), "JPEG", quality=80)
    save("gray-progressive.jpg", picture(19, 26).convert("L"), "JPEG", quality=80, progressive=True)
    save("rgb-inside.jpg", picture(18, 18), "JPEG", quality=90, keep_rgb=True)
    save("restart.jpg", picture(40, 33), "JPEG", quality=60, restart_marker_rows=1)
    save("one-pixel.jpg", picture(1, 1), "JPEG")
    save("worst-quality.jpg", picture(33, 17), "JPEG", quality=1)
    save("cmyk.jpg", picture(22, 17).convert("CMYK"), "JPEG", quality=85)
    # The same samples declared to be YCCK: the last byte of the Adobe marker says so.
    data = bytearray((OUT / "cmyk.jpg").read_bytes())
    data[data.index(b"Adobe") + 11] = 2
    put("ycck.jpg", bytes(data))
    # A wrong bit in the compressed data: libjpeg warns and goes on, and so does Pillow.
    data = bytearray((OUT / "baseline-444.jpg").read_bytes())
    data[len(data) * 4 // 5] ^= 0x10
    put("damaged-scan.jpg", bytes(data))


def pngs():
    rgb = picture(21, 15)
    alpha = Image.fromarray(np.linspace(0, 255, 21 * 15).astype(np.uint8).reshape(15, 21), "L")
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    gray_alpha = rgb.convert("L")
    gray_alpha.putalpha(alpha)
    save("rgb.png", rgb, "PNG")
    save("rgba.png", rgba, "PNG")
    save("gray.png", rgb.convert("L"), "PNG")
    save("gray-alpha.png", gray_alpha, "PNG")
    save("bilevel.png", rgb.convert("1"), "PNG")
    save("palette.png", rgb.quantize(11), "PNG")
    save("palette-transparent.png", rgb.quantize(11), "PNG", transparency=3)
    save("palette-alpha.png", rgba.quantize(30), "PNG")
    save("rgb-transparent-color.png", rgb, "PNG", transparency=rgb.getpixel((3, 4)))
    save("png-called-jpeg.jpg", rgb, "PNG")

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    def png16(values, color):
        height, width = values.shape[:2]
        rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
        header = struct.pack(">IIBBBBB", width, height, 16, color, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")

    deep = np.array(rgb).astype(np.uint16) * 256 + np.arange(21 * 15 * 3, dtype=np.uint16).reshape(15, 21, 3) % 256
    put("rgb-16-bit.png", png16(deep, 2))
    # Pillow saturates 16-bit grey; we keep its high byte, as Pillow does for 16-bit colour.
    high = Image.fromarray((deep[..., 1] >> 8).astype(np.uint8), "L").convert("RGB")
    put("gray-16-bit.png", png16(deep[..., 1], 0), rgb=high)


def others():
    rgb = picture(23, 14)
    rgba = rgb.copy()
    rgba.putalpha(Image.linear_gradient("L").resize((23, 14)))
    save("rgb.bmp", rgb, "BMP")
    save("gray.bmp", rgb.convert("L"), "BMP")
    save("palette.bmp", rgb.quantize(9), "BMP")
    save("palette.gif", rgb.quantize(20), "GIF")
    save("transparent.gif", rgb.quantize(20), "GIF", transparency=2)
    save("animated.gif", rgb.quantize(16), "GIF", save_all=True, append_images=[picture(23, 14, 2).quantize(16)])
    save("rgb.tiff", rgb, "TIFF")
    save("lzw.tif", rgb, "TIFF", compression="tiff_lzw")
    save("deflate.tif", rgb.convert("L"), "TIFF", compression="tiff_adobe_deflate")
    save("rgba.tif", rgba, "TIFF")
    # Only that it decodes: the JPEG decoder inside is not the one of our JPEGs.
    save("jpeg.tif", rgb, "TIFF", compression="jpeg")
    del expected["jpeg.tif"]
    # Not supported, and to be refused in so many words.
    save("palette.tif", rgb.quantize(9), "TIFF")
    del expected["palette.tif"]
    save("lossless.webp", rgb, "WEBP", lossless=True)
    save("lossless-alpha.webp", rgba, "WEBP", lossless=True, exact=True)
    save("lossy.webp", picture(31, 22), "WEBP", quality=70)


def real_data():
    root = Path(os.environ.get("DINO_VMF_TEST_DATA", OUT.parents[4].parent / "shared/data"))
    sums = {}
    for name in ["imagenet300", "clothing/train", "clothing/test"]:
        files = sorted(f for f in (root / name).rglob("*") if f.suffix.lower() in (".jpg", ".jpeg"))
        crc = 0
        for file in files:
            crc = zlib.crc32(Image.open(file).convert("RGB").tobytes(), crc)
        if files:
            sums[name] = [len(files), crc]
    if sums:
        (OUT / "real_data.json").write_text(json.dumps(sums, indent=1) + "\n")


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.iterdir():
        if old.name != "real_data.json":
            old.unlink()
    jpegs()
    pngs()
    others()
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in expected.items())
    (OUT / "expected.json").write_text(f"{{\n{lines}\n}}\n")
    real_data()
    print(len(expected), "files,", sum(f.stat().st_size for f in OUT.iterdir()), "bytes")
