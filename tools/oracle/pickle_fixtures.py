"""Writes crates/files/tests/fixtures/pickle.json and zip/: pickles and archives, and what Python finds in them.

    python tools/oracle/pickle_fixtures.py

Needs NumPy and PyTorch. pickle.json has one line per case: a name, the protocols whose pickles have the same content, the pickles in
hexadecimal, and their content. A pickle is read by Python's own Unpickler with a `find_class` that gives a class without any
code for every name. Calls are recorded, nothing is run. A content is a list of a kind and its value:

    ["int", hex], ["bytes", hex], ["bytearray", hex]   an int in two's complement, lowest byte first
    ["float", hex] or ["float", "nan"]                 the bits
    ["text", t], ["bool", b], ["none"]
    ["tuple", [..]], ["list", [..]], ["set", [..]], ["frozenset", [..]], ["dict", [[key, value], ..]]     sets sorted
    ["global", module, name], ["persistent", id]
    ["call", {"callable": .., "arguments": [..], "keywords": .., "state": .., "items": [..], "pairs": [[key, value], ..]}]
    ["same", n]      the object that was the n-th to be met, of those that are neither a scalar, nor empty, nor a global

zip/expected.json has for each archive its entries: name, size, method, crc32 unless it is 0, and where its bytes are unless
they are compressed.
"""
import argparse, collections, io, json, os, pathlib, pickle, struct, types, zipfile

import numpy as np
import torch

out = pathlib.Path(__file__).parents[2] / "crates/files/tests/fixtures"


class Recorded:
    """What a call would give, and what would be done to it."""

    def __new__(cls, *arguments, **keywords):
        return Recorded.call(cls, arguments, keywords)

    @staticmethod
    def call(callable, arguments, keywords):
        new = object.__new__(Recorded)
        new.callable, new.arguments, new.keywords, new.state, new.items, new.pairs = callable, arguments, keywords, None, [], []
        return new

    def __call__(self, *arguments, **keywords):
        return Recorded.call(self, arguments, keywords)

    def __setstate__(self, state):
        self.state = (state,)

    def __setitem__(self, key, value):
        self.pairs.append((key, value))

    def append(self, item):
        self.items.append(item)

    def extend(self, items):
        self.items.extend(items)


class Persistent:
    def __init__(self, name):
        self.name = name


class Reader(pickle.Unpickler):
    def __init__(self, file):
        super().__init__(file, fix_imports=False, encoding="bytes")
        self.classes = {}

    def find_class(self, module, name):
        return self.classes.setdefault((module, name), type(name, (Recorded,), {"place": (module, name)}))

    def persistent_load(self, name):
        return Persistent(name)


def content(value, met):
    """The content of a value; `met` has the objects met so far."""
    inside = lambda values: [content(value, met) for value in values]
    pairs = lambda pairs: [inside(pair) for pair in pairs]
    match value:
        case None:
            return ["none"]
        case bool():
            return ["bool", value]
        case int():
            return ["int", value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "little", signed=True).hex()]
        case float():
            return ["float", "nan" if value != value else struct.pack(">d", value).hex()]
        case str():
            return ["text", value]
        case bytes() | bytearray():
            return [type(value).__name__, value.hex()]
        case type():
            return ["global", *value.place]
        case tuple() if not value:
            return ["tuple", []]
    if id(value) in met:
        return ["same", met[id(value)]]
    met[id(value)] = len(met)
    match value:
        case tuple() | list():
            return [type(value).__name__, inside(value)]
        case set() | frozenset():
            return [type(value).__name__, sorted(inside(value))]
        case dict():
            return ["dict", pairs(value.items())]
        case Persistent():
            return ["persistent", content(value.name, met)]
        case Recorded():
            call = {"callable": content(value.callable, met), "arguments": inside(value.arguments)}
            if value.keywords:
                call["keywords"] = content(value.keywords, met)
            if value.state:
                call["state"] = content(value.state[0], met)
            return ["call", call | {"items": inside(value.items), "pairs": pairs(value.pairs)}]
    raise TypeError(type(value))


class WithKeywords:
    """Protocol 4 has an instruction of its own for this."""

    def __new__(cls, *arguments, **keywords):
        return object.__new__(cls)

    def __getnewargs_ex__(self):
        return (1,), {"size": 2}


class Harmful:
    def __reduce__(self):
        return os.system, ("touch harmed",)


class Storage:
    """Something that is kept outside the pickle, as PyTorch keeps the bytes of tensors."""


class Writer(pickle.Pickler):
    def persistent_id(self, value):
        # Protocol 0 has texts only.
        return ("storage", "0", "cpu", 6) if isinstance(value, Storage) else None


def cyclic():
    ring = [1]
    ring.append(ring)
    keys = {}
    keys["self"] = keys
    knot = ([],)
    knot[0].append(knot)
    own = argparse.Namespace(name="own")
    own.itself = own
    return [ring, keys, knot, own]


def shared():
    row, text = [1, 2], "once"
    pair = (row, text)
    return {"a": row, "b": row, "c": pair, "d": [pair, pair, text], "e": ((), ())}


long = "a text of more than 255 bytes " * 9
wide = [(1 << bits) + more for bits in (7, 8, 15, 16, 31, 32, 63, 64, 127, 200) for more in (-1, 0)]
values = {
    "scalars": [None, True, False, "", b"", (), [], {}],
    "nested": {"a": [1, 2.5, None, True], "b": (1, (2, (3, 4, 5, 6)), ()), "c": {"d": {}}, 7: "int", (1, "x"): [[[]]]},
    "ints": [0, 0x1950A86A20F9469CFC6C] + wide + [-number for number in wide],
    "floats": [0.0, -0.0, 1.5, -1e300, 5e-324, 0.1, float("inf"), float("-inf"), float("nan")],
    "texts": ["plain", "ä€😀", "line\nbreak \\ \\u0041 \\\\n\0\r\x1a\x7f\x80\xff", "'\"", long],
    "bytes": [b"bytes", bytes(range(0, 256, 5)), b"b" * 256, bytearray(b"array")],
    "sets": [{1, 2, 3}, frozenset([4, 5]), set(), frozenset()],
    "shared": shared(),
    "cyclic": cyclic(),
    "collections": [
        collections.OrderedDict([("b", 1), ("a", [2])]),
        collections.OrderedDict(),
        collections.defaultdict(list, {"k": [1]}),
        collections.deque([1, 2, 3], 5),
        collections.Counter("aab"),
        collections.OrderedDict,
        len,
        1 + 2j,
    ],
    "namespace": {"args": argparse.Namespace(arch="vit_small", lr=0.0005, epochs=100, data=None), "epoch": 3},
    "objects": [WithKeywords(), slice(1, None, 2)],
    "numpy": {
        "f32": np.arange(6, dtype=np.float32).reshape(2, 3),
        "columns": np.asfortranarray(np.arange(4, dtype=np.int16).reshape(2, 2)),
        "empty": np.zeros((0, 3), np.uint8),
        "point": np.array(7, np.int64),
        "objects": np.array(["x", None], object),
        "f64": np.float64(0.25),
        "i64": np.int64(-3),
        "bool": np.bool_(True),
        "dtype": np.dtype(">f8"),
    },
    "persistent": {"weight": Storage(), "state": collections.OrderedDict(bias=Storage())},
    "harmful": [Harmful(), "behind it"],
}

# What Python 3 reads and does not write.
by_hand = {
    "python 2, protocol 0": b"(dp0\nS'it\\'s'\np1\n(lp2\nI1\naL-5L\naI01\naF1.5\nag1\nasVna\\u00efve\np3\nNs.",
    "python 2, protocol 2": b"\x80\x02}q\x00(U\x05ep\xe9chq\x01K\x07T\x03\x00\x00\x00abcq\x02]q\x03h\x02au.",
    "an OrderedDict of python 2": b"\x80\x02ccollections\nOrderedDict\nq\x00]q\x01(]q\x02(U\x01aK\x01e]q\x03(U\x01bK\x02ee\x85q\x04Rq\x05.",
    "an instance of python 2": b"(iargparse\nNamespace\np0\n(dp1\nS'lr'\nF0.5\nsb.",
    "an instance with arguments": b"(cfractions\nFraction\nK\x01K\x02o.",
    "a class by INST with arguments": b"(I1\nI2\nifractions\nFraction\n.",
    "marks, copies and what is dropped": b"](K\x01K\x02lK\x09a20(K\x03K\x04K\x05t2N0(0(K\x06K\x071\x86\x86.",
    "long forms": b"\x80\x05\x95\x2c\0\0\0\0\0\0\0(\x8d\x02\0\0\0\0\0\0\0hi\x8e\x02\0\0\0\0\0\0\0by\x96\x01\0\0\0\0\0\0\0a\x8b\x02\0\0\0\0\x80\x8a\0l.",
    "far indices of the memo": b"K\x01r\xa0\x86\x01\0p70000\nK\x020j\xa0\x86\x01\0g70000\n\x86.",
    "a text of half a surrogate pair in a dropped place": b"X\x03\0\0\0\xed\xa0\x800N.",
    "something is left on the stack": b"K\x01(K\x02K\x03.",
    "an attribute of a call": b"c__builtin__\ngetattr\nccollections\nOrderedDict\nU\x08fromkeys\x86R]K\x01a\x85R.",
    "two dicts in one": b"}(K\x01K\x02K\x01K\x03uK\x04(K\x05K\x06ds.",
}


def dumped(value, protocol):
    file = io.BytesIO()
    Writer(file, protocol).dump(value)
    return file.getvalue()


def cases():
    for name, value in values.items():
        found = {}
        for protocol in range(6):
            if name == "persistent" and protocol == 0:
                continue
            written = dumped(value, protocol)
            found.setdefault(json.dumps(content(Reader(io.BytesIO(written)).load(), {})), []).append((protocol, written))
        for read, written in found.items():
            protocols, pickles = zip(*written)
            yield {"name": name, "protocols": protocols, "pickles": [p.hex() for p in pickles], "content": json.loads(read)}
    with zipfile.ZipFile(io.BytesIO(saved())) as reader:
        by_torch = {"the pickle of PyTorch": reader.read("archive/data.pkl")}
    for name, written in (by_hand | by_torch).items():
        read = content(Reader(io.BytesIO(written)).load(), {})
        yield {"name": name, "protocols": [], "pickles": [written.hex()], "content": read}


files = {"archive/data.pkl": b"\x80\x02}.", "archive/data/0": bytes(range(100, 140)), "archive/version": b"3\n"}


def archive(method=zipfile.ZIP_STORED, comment=b"", force=False, contents=files, streamed=False):
    file = io.BytesIO()
    # To a file that cannot be rewound, Python writes sizes and checksum behind each entry, as PyTorch does.
    target = types.SimpleNamespace(write=file.write, flush=file.flush) if streamed else file
    with zipfile.ZipFile(target, "w", method) as writer:
        writer.comment = comment
        for name, data in contents.items():
            about = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            about.compress_type = method
            with writer.open(about, "w", force_zip64=force) as entry:
                entry.write(data)
    return file.getvalue()


def with_zip64():
    """Every number of the directory in 64 bits, as if it did not fit into fewer."""
    limits = zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT
    zipfile.ZIP64_LIMIT = zipfile.ZIP_FILECOUNT_LIMIT = -1
    try:
        return archive(force=True)
    finally:
        zipfile.ZIP64_LIMIT, zipfile.ZIP_FILECOUNT_LIMIT = limits


def saved(crc32=True):
    """A checkpoint of PyTorch."""
    file = io.BytesIO()
    torch.serialization.set_crc32_options(crc32)
    weights = collections.OrderedDict(weight=torch.arange(6.0).reshape(2, 3), bias=torch.ones(2, dtype=torch.bfloat16))
    weights["tied"] = torch.nn.Parameter(weights["weight"].T)
    torch.save({"model": weights, "epoch": 3, "size": weights["weight"].shape}, file)
    return file.getvalue()


def entries(data):
    with zipfile.ZipFile(io.BytesIO(data)) as reader:
        for about in reader.infolist():
            # What Python itself goes back to when it is told to read an entry again.
            start = reader.open(about)._orig_compress_start
            yield {
                "name": about.filename,
                "size": about.file_size,
                "method": about.compress_type,
                "crc32": about.CRC or None,
                "start": start if about.compress_type == zipfile.ZIP_STORED else None,
            }


def main():
    (out / "zip").mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases())
    (out / "pickle.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    archives = {
        "stored": archive(),
        "deflated": archive(zipfile.ZIP_DEFLATED),
        "comment": archive(comment=b"a comment"),
        "zip64": with_zip64(),
        "zip64-headers": archive(force=True),
        "streamed": archive(streamed=True),
        "names": archive(contents={name: name.encode() for name in ["ä€😀.txt", "folder/", "n" * 300, "../up"]}),
        "empty": archive(contents={}),
        "pytorch": saved(),
        "pytorch-no-crc": saved(crc32=False),
    }
    for name, data in archives.items():
        (out / f"zip/{name}.zip").write_bytes(data)
    expected = {name: list(entries(data)) for name, data in archives.items()}
    lines = (f"{json.dumps(name)}: {json.dumps(entries)}" for name, entries in expected.items())
    (out / "zip/expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
