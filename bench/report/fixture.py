"""A run that never was: for tests of what reads documents."""
import functools
import json

import document

SIZES = (0, 64, 300, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20)
NUMBERS = (1, 8, 64)
PATTERNS = document.PATTERNS
PERCENTS = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99)

# How much slower than raw each kind is, to tell them apart in plots.
_SLOWNESS = {"raw": 1.0, "weft": 1.3, "grpc": 6.0, "ucx": 0.8, "sockets": 2.2}


def _latency_us(path, size, kind):
    start, per_byte = {"shm": (0.5, 6e-5), "tcp": (9.0, 2e-4)}.get(path, (20.0, 1e-3))
    return (start + per_byte * size) * _SLOWNESS.get(kind, 3.0)


def figures(size, per_s, p50_us=None):
    value = {"per_s": per_s, "GBps": per_s * size / 1e9}
    if p50_us:
        value["latency_us"] = {"p%g" % p: p50_us * (0.9 + 0.1 * i if i < 8 else 2.0 ** (i - 7))
                               for i, p in enumerate(PERCENTS)}
        value["latency_us"]["p50"] = p50_us
    return value


def entry(key, rounds, emulated=False):
    """`rounds`: (fit, figures) each."""
    return dict(key._asdict(), metric=".".join(map(str, key)), emulated=emulated,
                leading="p50_us" if key.outstanding == 1 else "per_s",
                rounds=[dict(value, round=number, fit=fit)
                        for number, (fit, value) in enumerate(rounds, 1)])


def _rounds(key, noise):
    latency = _latency_us(key.path, key.bytes, key.kind)
    for factor in noise:
        if key.outstanding == 1:
            yield True, figures(key.bytes, 1e6 / (latency * factor), latency * factor)
        else:
            yield True, figures(key.bytes, key.outstanding ** 0.6 * 1e6 / (latency * factor))


def value(paths=("shm", "tcp"), kinds=("raw", "weft"), noise=(1.0, 1.01, 0.99, 1.02, 0.98),
          only=lambda key: True):
    keys = [document.Key(path, pattern, size, number, kind)
            for path in paths for pattern in PATTERNS for size in SIZES for number in NUMBERS
            for kind in kinds
            if (size or pattern in ("unary", "coroutine", "stream", "messages"))
            and size * number <= 16 << 20 and (pattern != "coroutine" or number == 1)
            and not (kind == "raw" and pattern in ("coroutine", "stream", "bulk_checked"))]
    emulated = ("rxe", "siw")
    return {
        "format": document.FORMAT, "version": document.VERSION, "taken_at": "2026-11-21T04:00:00Z",
        "machine": {"cpu": "A processor", "processors": 2, "virtual": True, "governor": None,
                    "congestion_control": "cubic",
                    "kernel": "Linux 6.1", "distribution": "Debian", "compiler": "g++ 12",
                    "libfabric": "1.17", "client_cpu": 0, "server_cpu": 1, "stolen_ms": 3,
                    "core_to_core_ns": {"min": 44, "median": 50, "max": 61}},
        "settings": {"paths": list(paths), "rounds": 5, "seconds_per_leg": 0.2, "turns": 10,
                     "fit_turns": 9},
        "notes": ["all is well"],
        "summary": [
            {"path": path, "what": "64 B round trip, p50", "unit": "us", "raw": 0.5, "weft": 0.6,
             "ratio": 1.2, "goal": "<= raw + 0.15", "holds": path != "tcp"} for path in paths],
        "cells": [entry(key, _rounds(key, noise), key.path in emulated) for key in keys if only(key)],
        "left_out": [{"path": None, "pattern": "write", "bytes": 0, "outstanding": 1, "kind": None,
                      "reason": "there is no one-sided transfer of 0 bytes"}],
    }


@functools.lru_cache(maxsize=None)
def make(**changes):
    """The same document for the same changes: not to be changed."""
    return document.parse(json.dumps(value(**changes)), "fixture")
