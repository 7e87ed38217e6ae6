#!/usr/bin/env python3
"""What `dino-vmf watch` costs.

memory  A folder of many runs that share one long log (hard links, so that the disk holds it once). Opens the list until
        every row is there, then a run's page until its log is read, then a comparison of twelve. Prints times and the peak
        memory of the server.
cost    The same short training, with nobody watching and with a page of the run open in turn. Prints images a second of
        both, the processor time that the training takes for an image, and the server's share of one core. Processor time
        depends far less on what else runs on the machine than images a second do. `--repeat` pairs.

    tools/bench/watch.py memory --runs 1000 --records 1000000
    tools/bench/watch.py cost --repeat 6
"""

import argparse
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time


IMAGES = 512


class Watch:
    """A server that is ended with the block."""

    def __init__(self, binary, folder):
        self.process = subprocess.Popen([binary, "watch", folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.host = self.process.stdout.readline().split()[0].removeprefix("http://").rstrip("/")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def get(self, path):
        connection = http.client.HTTPConnection(self.host, timeout=600)
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200, (path, answer.status)
        return answer

    def events(self, path):
        answer = self.get(path)
        while line := answer.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def peak(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:"))

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def small(binary, out, *more):
    """A short training on made-up images, which logs every step."""
    return [binary, "pretrain", "--data", f"synthetic:train={IMAGES},test=64,size=32", "--arch", "vit_nano", "--patch-size", "8", "--batch-size", "32",
            "--local-crops", "2", "--out-dim", "256", "--set", "log_every=1", "--device=cpu", "--no-report", "--out", out, *more]


def memory(args, folder):
    first = folder / "runs" / "run-0000"
    subprocess.run(small(args.binary, str(first), "--epochs", "1"), check=True, capture_output=True)
    template = json.loads((first / "metrics.jsonl").read_text().splitlines()[0])
    (first / "result.json").unlink()
    log = first / "metrics.jsonl"
    with open(log, "w") as file:
        for step in range(1, args.records + 1):
            template["step"], template["loss"] = step, 2 + 4 * 0.5 ** (8 * step / args.records)
            file.write(json.dumps(template) + "\n")
    for number in range(1, args.runs):
        run = first.with_name(f"run-{number:04}")
        run.mkdir()
        (run / "config.toml").write_bytes((first / "config.toml").read_bytes())
        os.link(log, run / "metrics.jsonl")
    print(f"{args.runs} runs of {args.records} records, {log.stat().st_size / 2**20:.0f} MiB each")
    with Watch(args.binary, str(folder / "runs")) as watch:
        begun, rows = time.time(), set()
        page = len(watch.get("/").read())
        print(f"first answer: {time.time() - begun:.2f} s, {page / 1024:.0f} KiB")
        for event in watch.events("/events/list"):
            rows |= event["rows"].keys()
            if len(rows) == args.runs:
                break
        print(f"every row there: {time.time() - begun:.1f} s, peak {watch.peak():.0f} MiB")
        begun = time.time()
        names = [f"run-{number:04}" for number in range(min(12, args.runs))]
        for title, query in [("a run", "run=" + names[0]), ("twelve compared", "&".join("run=" + name for name in names))]:
            for event in watch.events(f"/events/runs?{query}"):
                if "is being read" not in event["parts"]["head"]:
                    break
            print(f"{title}: its log read in {time.time() - begun:.1f} s, peak {watch.peak():.0f} MiB")


def speed(args, folder, name, is_watched):
    """Images a second of a run, its processor time for an image in ms, and the server's share of one core."""
    out = folder / "runs" / name
    training = subprocess.Popen(small(args.binary, str(out), "--epochs", str(args.epochs)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    share = 0.0
    if is_watched:
        while not (out / "metrics.jsonl").exists():
            time.sleep(0.02)
        with Watch(args.binary, str(folder / "runs")) as watch:
            def read():
                try:
                    for _ in watch.events(f"/events/runs?run={name}"):
                        pass
                except (OSError, http.client.HTTPException):
                    pass
            threading.Thread(target=read, daemon=True).start()
            begun, before = time.time(), watch.cpu()
            used = finished(training)
            share = (watch.cpu() - before) / (time.time() - begun)
    else:
        used = finished(training)
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    speeds = [record["images_per_second"] for record in records if "images_per_second" in record]
    return statistics.median(speeds[len(speeds) // 5:]), 1000 * used / (args.epochs * IMAGES), share


def finished(training):
    """Waits for a training; the processor time that it took, in seconds."""
    _, status, usage = os.wait4(training.pid, 0)
    assert status == 0, status
    return usage.ru_utime + usage.ru_stime


def cost(args, folder):
    alone, watched, alone_ms, watched_ms, shares = [], [], [], [], []
    for number in range(args.repeat):
        # Each comes first in turn.
        for is_watched in [number % 2 == 0, number % 2 == 1]:
            value, used, share = speed(args, folder, f"run-{number}-{int(is_watched)}", is_watched)
            (watched if is_watched else alone).append(value)
            (watched_ms if is_watched else alone_ms).append(used)
            if is_watched:
                shares.append(share)
        print(f"pair {number}: alone {alone[-1]:.1f} img/s, watched {watched[-1]:.1f} img/s, "
              f"{alone_ms[-1]:.3f} and {watched_ms[-1]:.3f} ms of processor time an image, server {100 * shares[-1]:.2f} % of one core", flush=True)
    print(f"images a second, watched to alone: {statistics.median(watched) / statistics.median(alone):.4f} (medians); "
          f"processor time an image: {statistics.median(watched_ms) / statistics.median(alone_ms):.4f}; alone from {min(alone):.1f} to {max(alone):.1f}, "
          f"watched from {min(watched):.1f} to {max(watched):.1f}; server {100 * statistics.median(shares):.2f} % of one core")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["memory", "cost"])
    parser.add_argument("--binary", default="target/release/dino-vmf")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=6)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        {"memory": memory, "cost": cost}[args.what](args, pathlib.Path(folder))


if __name__ == "__main__":
    main()
