#!/usr/bin/env python3
"""Blocks by NBD: nbdkit's own plugins over TCP, and the weft plugin, in turns.

    compare.py BIN [--seconds N] [--mib N] [--folder DIR] [--spin-us N] [--paths LIST]

BIN has nbdkit-weft-plugin.so and weft_blockd. fio's nbd engine is the client of all:

    file/tcp    fio -> NBD over TCP -> nbdkit, file plugin
    nbd/tcp     fio -> NBD over a Unix socket -> nbdkit, nbd plugin -> NBD over TCP -> nbdkit, file plugin
    weft/shm    fio -> NBD over a Unix socket -> nbdkit, weft plugin -> shared memory -> weft_blockd
    weft/tcp    the same, and TCP to weft_blockd
    weft/verbs  the same, by a card that is in this host, if --paths (shm,tcp) names it

So the first has one hop, a network's, and the others have two, of which the second is the network's:
nbd/tcp is what stands in the place of weft/tcp. Each has a file of its own, N MiB (256), in the page
cache; nothing is flushed. For each kind of request all take turns, of N seconds (1.5). Status 1
if a turn failed.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys

import blocks

# Name, fio's rw, its bs.
KINDS = [("4 KiB random read", "randread", "4k"), ("4 KiB random write", "randwrite", "4k"),
         ("1 MiB sequential read", "read", "1m"), ("1 MiB sequential write", "write", "1m")]
DEPTHS = [1, 32]
# What fio does first, and does not count: the first requests find everything cold.
RAMP_SECONDS = 0.3
# How long a run may take besides.
PATIENCE_SECONDS = 30


def fill(path, mib):
    """A file without holes."""
    block = os.urandom(1 << 20)
    with open(path, "wb") as file:
        for _ in range(mib):
            file.write(block)


def run_fio(uri, rw, size, depth, options):
    """(p50, p99, p99.9 in us, operations a second, MiB/s); None: it failed."""
    command = blocks.ENDS_WITH_US + [
        "fio", "--name=blocks", "--ioengine=nbd", "--uri=" + uri, "--rw=" + rw, "--bs=" + size,
        "--iodepth=%d" % depth, "--size=%dM" % options.mib, "--time_based",
        "--runtime=%g" % options.seconds, "--ramp_time=%g" % RAMP_SECONDS, "--thread",
        "--output-format=json", "--percentile_list=50:99:99.9"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=options.seconds + PATIENCE_SECONDS)
        job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    except (subprocess.TimeoutExpired, ValueError) as why:
        print("fio failed: %s" % why, file=sys.stderr)
        return None
    if done.returncode != 0 or job["error"]:
        print("fio failed: %s" % done.stderr.strip(), file=sys.stderr)
        return None
    side = job["read" if "read" in rw else "write"]
    latencies = side["clat_ns"]["percentile"]
    us = [latencies[key] / 1000 for key in ("50.000000", "99.000000", "99.900000")]
    return us + [side["iops"], side["bw_bytes"] / (1 << 20)]


def compare(uris, options):
    """False: a turn failed."""
    good = True
    print("%-24s %3s  %-9s %9s %9s %9s %11s %9s  %s" % (
        "", "QD", "", "p50 us", "p99 us", "p99.9 us", "requests/s", "MiB/s",
        "p50 and rate: x of file/tcp, x of nbd/tcp"))
    for kind, rw, size in KINDS:
        for depth in DEPTHS:
            beside = []  # those with nbdkit's own plugins
            for name, uri in uris.items():
                figures = run_fio(uri, rw, size, depth, options)
                if figures is None:
                    good = False
                    continue
                if not name.startswith("weft"):
                    beside.append(figures)
                print("%-24s %3d  %-9s %9.1f %9.1f %9.1f %11.0f %9.0f  %s" % (
                    (kind, depth, name) + tuple(figures) + ("  ".join(
                        "%5.2f %5.2f" % (figures[0] / other[0], figures[3] / other[3])
                        for other in beside),)), flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("bin")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--folder", help="where the files are: a folder of the disk to measure on")
    parser.add_argument("--spin-us", type=int, default=50, help="weft_blockd's --spin_us")
    parser.add_argument("--paths", default="shm,tcp", help="Weft's: of shm, tcp, verbs")
    options = parser.parse_args()
    why_not = blocks.lacking("nbdkit", "fio")
    if why_not:
        sys.exit("blocks: " + why_not)

    folder = blocks.Folder(options.folder)
    running = []
    try:
        fill(folder.file("own.img"), options.mib)
        running.append(blocks.Nbdkit(folder, "own", ["file", folder.file("own.img")], tcp=True))
        uris = {"file/tcp": running[0].uri}
        shutil.copyfile(folder.file("own.img"), folder.file("far.img"))
        far = blocks.Nbdkit(folder, "far", ["file", folder.file("far.img")], tcp=True)
        running.append(far)
        running.append(blocks.Nbdkit(folder, "nbd", ["nbd", "uri=" + far.uri]))
        uris["nbd/tcp"] = running[-1].uri
        for path in options.paths.split(","):
            image = folder.file(path + ".img")
            shutil.copyfile(folder.file("own.img"), image)
            server = blocks.Blockd(os.path.join(options.bin, "weft_blockd"), image,
                                   "--paths=" + path, "--spin_us=%d" % options.spin_us)
            running.append(server)
            running.append(blocks.Nbdkit(folder, path, [
                os.path.abspath(os.path.join(options.bin, "nbdkit-weft-plugin.so")),
                "server=" + server.address, "paths=" + path]))
            uris["weft/" + path] = running[-1].uri
        return 0 if compare(uris, options) else 1
    finally:
        for process in reversed(running):
            process.close()
        folder.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
