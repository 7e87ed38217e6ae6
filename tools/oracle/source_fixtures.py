"""Writes crates/data/tests/fixtures/parquet/: small parquet files as pyarrow and the Hugging Face hub write them.

    python tools/oracle/source_fixtures.py

Needs pyarrow (made with 26.0.1). Image number i is a BMP of 5 x 4 pixels of the colour (10 i, 20, 200 - 10 i).

hub.parquet         struct image {bytes, path}, ClassLabel with names, snappy, dictionaries, two groups of rows
zstd_v2.parquet     binary images, labels as texts, zstd, newer pages with checksums, no dictionaries
gzip.parquet        struct image, whole-number labels in the delta encoding, gzip
lz4.parquet         required binary images, 32-bit labels, lz4 (raw)
nulls.parquet       a null struct, null bytes with a path, a null label
unlabelled.parquet  label -1 everywhere, as the hub has it for test parts
brotli.parquet      a codec that is not supported
delta.parquet       images in an encoding that is not supported
lists.parquet       several images a row, which is not supported
"""

import json
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

OUT = Path(__file__).resolve().parents[2] / "crates/data/tests/fixtures/parquet"
STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def bmp(i):
    r, g, b = 10 * i, 20, 200 - 10 * i
    header = b"BM" + struct.pack("<13I", 54 + 64, 0, 54, 40, 5, 4, 24 << 16 | 1, 0, 64, 2835, 2835, 0, 0)
    return header + (bytes([b, g, r]) * 5 + b"\0") * 4


def images(count, paths=True):
    return [{"bytes": bmp(i), "path": f"{i}.bmp" if paths and i % 2 == 0 else None} for i in range(count)]


def write(name, columns, fields, features=None, **options):
    schema = pa.schema(fields)
    if features:
        schema = schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    table = pa.table({field.name: pa.array(columns[field.name], field.type) for field in schema}, schema=schema)
    pq.write_table(table, OUT / name, **options)


LABELLED = {"image": {"_type": "Image"}, "label": {"names": ["ant", "bee", "cat"], "_type": "ClassLabel"}}

if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    fields = [("image", STRUCT), ("label", pa.int64())]
    write("hub.parquet", {"image": images(6), "label": [0, 1, 2, 2, 1, 0]}, fields, LABELLED,
          compression="snappy", row_group_size=4)
    write("zstd_v2.parquet", {"image": [bmp(i) for i in range(4)], "label": ["cat", "ant", "cat", "dog"]},
          [("image", pa.binary()), ("label", pa.string())],
          compression="zstd", data_page_version="2.0", use_dictionary=False, write_page_checksum=True)
    write("gzip.parquet", {"image": images(4, paths=False), "label": [3, 0, 7, 3]}, fields,
          compression="gzip", use_dictionary=False, column_encoding={"label": "DELTA_BINARY_PACKED"})
    write("lz4.parquet", {"photo": [bmp(i) for i in range(4)], "id": [5, 6, 7, 8], "class": [1, 0, 1, 0]},
          [pa.field("photo", pa.binary(), nullable=False), ("id", pa.int64()), ("class", pa.int32())], compression="lz4")
    nulls = [images(1)[0], None, {"bytes": None, "path": "far/away.jpg"}, images(4)[3]]
    write("nulls.parquet", {"image": nulls, "label": [0, None, 1, 1]}, fields, LABELLED)
    write("unlabelled.parquet", {"image": images(3), "label": [-1, -1, -1]}, fields, LABELLED)
    write("brotli.parquet", {"image": images(2), "label": [0, 1]}, fields, LABELLED, compression="brotli")
    write("delta.parquet", {"image": [bmp(i) for i in range(2)]}, [("image", pa.binary())],
          use_dictionary=False, column_encoding={"image": "DELTA_BYTE_ARRAY"})
    write("lists.parquet", {"images": [images(2), images(1)]}, [("images", pa.list_(STRUCT))])
