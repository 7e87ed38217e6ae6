#!/usr/bin/env python3
"""f32 matrix-product rates of PyTorch on this machine, for the shapes of a vision transformer.

    python tools/bench/torch_gemm.py --threads 2 [--rows 4928 5520] [--dims 192 384]

Needs: torch. For each layer x [M, K] -> y [M, N] it times the three products of training: forward y = x W^T, gradient
of the input dX = dY W, gradient of the weight dW = dY^T x, and prints GFLOP/s (best of several runs).
M counts tokens: 8 images give 4928 with 2 global and 6 local crops, 5520 with 8 local crops.
"""

import argparse
import time

import torch


def rate(product, flops, seconds):
    product()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        product()
        best = min(best, time.perf_counter() - start)
    return flops / best / 1e9


def main():
    parser = argparse.ArgumentParser(description="f32 GEMM rates of PyTorch")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rows", type=int, nargs="+", default=[4928, 5520])
    parser.add_argument("--dims", type=int, nargs="+", default=[192, 384], help="embedding dimensions")
    parser.add_argument("--seconds", type=float, default=0.5, help="time spent on each product")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, GFLOP/s")
    print("|    M |    K |    N | x W^T |  dY W | dY^T x |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for rows in args.rows:
        for dim in args.dims:
            for k, n in ((dim, 3 * dim), (dim, dim), (dim, 4 * dim), (4 * dim, dim)):
                x, w, dy = torch.randn(rows, k), torch.randn(n, k), torch.randn(rows, n)
                y, dx, dw = torch.empty(rows, n), torch.empty(rows, k), torch.empty(n, k)
                flops = 2.0 * rows * k * n
                forward = rate(lambda: torch.mm(x, w.t(), out=y), flops, args.seconds)
                input_gradient = rate(lambda: torch.mm(dy, w, out=dx), flops, args.seconds)
                weight_gradient = rate(lambda: torch.mm(dy.t(), x, out=dw), flops, args.seconds)
                cells = (rows, k, n, round(forward), round(input_gradient), round(weight_gradient))
                print("| " + " | ".join(f"{cell:4}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
