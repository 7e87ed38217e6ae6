"""What the comparisons share: running one side, and how much other programs disturbed it meanwhile."""

import json
import os
import pathlib
import subprocess
import sys
import time

# Share of the processors that others may use before a round is not valid.
DISTURBED = 0.05


def busy_seconds():
    """Processor seconds that all processes have used since the machine started; None where /proc is missing."""
    try:
        with open("/proc/stat", encoding="ascii") as stat:
            user, nice, system, _idle, _wait, irq, softirq = (int(field) for field in stat.readline().split()[1:8])
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def children_seconds():
    used = os.times()
    return used.children_user + used.children_system


def fail(message):
    raise SystemExit(f"{pathlib.Path(sys.argv[0]).name}: {message}")


def run(command, threads):
    """Runs one side; returns its JSON object and the share of the processors that other processes used meanwhile.

    The thread count also goes into the usual environment variables.
    """
    count = str(threads)
    environment = dict(os.environ, RAYON_NUM_THREADS=count, OMP_NUM_THREADS=count, MKL_NUM_THREADS=count)
    busy, own, start = busy_seconds(), children_seconds(), time.monotonic()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        fail(f"cannot start {command[0]}: {error}")
    if "No module named 'torch'" in done.stderr:
        fail(f"{command[0]} has no torch: run this with a Python that has it, or name one with --python")
    if done.returncode != 0:
        fail(f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stderr.strip()}")
    others = 0.0
    if busy is not None:
        available = (time.monotonic() - start) * (os.cpu_count() or 1)
        others = max(0.0, (busy_seconds() - busy) - (children_seconds() - own)) / available
    try:
        return json.loads(done.stdout), others
    except ValueError:
        fail(f"`{' '.join(command)}` did not print one JSON object:\n{done.stdout.strip()}")


def speed(side, digits):
    """How fast a side was: images a second, or of one that counts no images its seconds."""
    images = side.get("images_per_second")
    return f"{side['seconds']:.{digits}f} s" if images is None else f"{images:.{digits}f} img/s"


def alternate(sides, threads, rounds, retries, about="", digits=1, watch=True):
    """Runs the sides in turn; yields (their JSON objects, share of other programs) for each round that counts.

    `sides` is a list of (name, command). A round that others disturbed is run again while there are retries. With
    `watch` off every round counts and the share is 0: for sides that do not compute on the processors.
    """
    done = 0
    while done < rounds:
        results, shares = zip(*(run(command, threads) for _, command in sides))
        others = max(shares) if watch else 0.0
        repeat = others > DISTURBED and retries > 0
        speeds = (f"{name} {speed(side, digits)}" for (name, _), side in zip(sides, results))
        note = f"{about}round {done + 1}: {', '.join(speeds)}"
        if watch:
            note += f", other programs {100 * others:.0f} %" + ", repeated" * repeat
        print(note, file=sys.stderr, flush=True)
        if repeat:
            retries -= 1
            continue
        done += 1
        yield list(results), others
