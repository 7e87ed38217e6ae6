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
