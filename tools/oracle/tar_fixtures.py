"""Writes crates/data/tests/fixtures/tar/*.tar: the same four images in every dialect of tar, by Python and by GNU tar.

    python tools/oracle/tar_fixtures.py

Needs no packages, and GNU tar as `tar` for v7, oldgnu, sparse_gnu and sparse_pax. Images are 2 x 2 BMPs of one colour.
Members: a.bmp, cat/b.bmp, a name of 150 characters, one of 300 characters (v7 and ustar: only the names that fit). The
sparse archives hold a.bmp and holes.bmp, a file of 1 MiB that is all hole but for its first bytes.
"""
import io, pathlib, re, struct, subprocess, tarfile, tempfile

out = pathlib.Path(__file__).parents[2] / "crates/data/tests/fixtures/tar"


def bmp(color):
    row = bytes(reversed(color)) * 2 + b"\0\0"
    fields = struct.pack("<IIIIiiHHIIiiII", 54 + 16, 0, 54, 40, 2, 2, 1, 24, 0, 16, 2835, 2835, 0, 0)
    return b"BM" + fields + row * 2


images = [
    ("a.bmp", (1, 2, 3)),
    ("cat/b.bmp", (4, 5, 6)),
    ("cat/" + "m" * 70 + "/" + "n" * 71 + ".bmp", (7, 8, 9)),
    ("cat/" + "x" * 140 + "/" + "y" * 151 + ".bmp", (10, 11, 12)),
]
limits = {"ustar": 255, "v7": 99}


def member(name, data):
    info = tarfile.TarInfo(name)
    info.size, info.mtime = len(data), 1_600_000_000
    return info


def without_process_id(archive):
    """GNU tar puts its process id into the invented name of a sparse member: a fixed one, and the checksum put right."""
    for start in range(0, len(archive), 512):
        block = bytearray(archive[start : start + 512])
        if found := re.match(rb"([^\0]*GNUSparseFile\.)\d+(/[^\0]*)", block[:100]):
            block[:100] = (found[1] + b"0" + found[2]).ljust(100, b"\0")
            block[148:156] = b" " * 8
            block[148:156] = b"%06o\0 " % sum(block)
            archive = archive[:start] + bytes(block) + archive[start + 512 :]
    return archive


def main():
    out.mkdir(parents=True, exist_ok=True)
    for name, dialect in [("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)]:
        with tarfile.open(out / f"{name}.tar", "w", format=dialect) as archive:
            for path, color in images:
                if len(path) < limits.get(name, 1000):
                    archive.addfile(member(path, bmp(color)), io.BytesIO(bmp(color)))
    with tempfile.TemporaryDirectory() as folder:
        for path, color in images:
            (pathlib.Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (pathlib.Path(folder) / path).write_bytes(bmp(color))
        with open(pathlib.Path(folder) / "holes.bmp", "wb") as file:
            file.write(bmp((0, 0, 0)))
            file.truncate(1 << 20)

        def gnu_tar(name, paths, *options):
            command = ["tar", "-b1", "--mtime=@1600000000", "--owner=0", "--group=0", "--mode=644", *options]
            command += ["-cf", str(out / f"{name}.tar"), *paths]
            subprocess.run(command, cwd=folder, check=True)

        gnu_tar("v7", [path for path, _ in images if len(path) <= limits["v7"]], "--format=v7")
        gnu_tar("oldgnu", [path for path, _ in images], "--format=oldgnu")
        pax = ["--format=posix", "--pax-option=exthdr.name=pax,delete=atime,delete=ctime"]
        gnu_tar("sparse_gnu", ["holes.bmp", "a.bmp"], "--format=gnu", "--sparse")
        gnu_tar("sparse_pax", ["holes.bmp", "a.bmp"], *pax, "--sparse")
    # Python pads archives to 10 KiB with zeros: two blocks of them are enough.
    for file in out.glob("*.tar"):
        data = without_process_id(file.read_bytes()).rstrip(b"\0")
        file.write_bytes(data + bytes(-len(data) % 512 + 1024))


if __name__ == "__main__":
    main()
