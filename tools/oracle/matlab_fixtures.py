#!/usr/bin/env python3
"""MATLAB files of version 5 as SciPy writes them -> crates/data/tests/fixtures/matlab/{plain,packed}.mat

    python tools/oracle/matlab_fixtures.py

Needs: numpy, scipy. Both files hold the same variables; those of Flowers-102 are of this kind, and packed.
    labels   uint8 [1, 4]: 77 1 102 3
    wide     float64 [2, 2], by column: 1 300 70000 -5
    one      uint16 [1, 1]: 9, small enough to share the eight bytes of its tag
    halves   float32 [1, 2]: 0.5 1.5
    text     characters, which are passed over
"""

import pathlib

import numpy as np
import scipy.io

OUT = pathlib.Path(__file__).resolve().parents[2] / "crates" / "data" / "tests" / "fixtures" / "matlab"


def main():
    variables = {
        "labels": np.array([[77, 1, 102, 3]], dtype=np.uint8),
        "wide": np.array([[1.0, 70000.0], [300.0, -5.0]]),
        "one": np.array([[9]], dtype=np.uint16),
        "halves": np.array([[0.5, 1.5]], dtype=np.float32),
        "text": "images",
    }
    OUT.mkdir(parents=True, exist_ok=True)
    for name, packed in (("plain.mat", False), ("packed.mat", True)):
        scipy.io.savemat(OUT / name, variables, do_compression=packed)
        # The header has the date, which is no part of what is compared.
        data = bytearray((OUT / name).read_bytes())
        data[:116] = b"MATLAB 5.0 MAT-file".ljust(116)
        (OUT / name).write_bytes(data)


if __name__ == "__main__":
    main()
