"""A run of ./dev perf, as its JSON document has it (docs/benchmarks.md).

    document = read("before.json")
    document.cells[Key("shm", "unary", 64, 1, "weft")].median("p50_us")
"""
import collections
import json
import statistics

import kinds

FORMAT = "weft-perf"
VERSION = 1

# Of one leg: one kind of end, one pattern of traffic, one path.
Key = collections.namedtuple("Key", "path pattern bytes outstanding kind")

# In this order wherever there is a choice; others follow as they come. (So it is with kinds.KNOWN.)
PATTERNS = ("unary", "coroutine", "stream", "messages", "bulk", "bulk_checked", "read", "write")


class BadDocument(Exception):
    """Its text says which file, and what is wrong with it."""


def is_latency(figure):
    """Less is better."""
    return figure.endswith("_us")


class Cell:
    """What all rounds of one leg yielded."""

    def __init__(self, key, value):
        self.key = key
        self.emulated = bool(value.get("emulated"))
        self.leading = value["leading"]
        self._rounds = value["rounds"]

    @staticmethod
    def _figure(of_round, figure):
        if is_latency(figure):
            return of_round.get("latency_us", {}).get(figure[:-len("_us")])
        return of_round.get(figure)

    def rounds_that_count(self):
        """{round: its figures}: those on a fit machine; all, if there was none."""
        fit = {r["round"]: r for r in self._rounds if r["fit"]}
        return fit or {r["round"]: r for r in self._rounds}

    def was_fit(self):
        return any(r["fit"] for r in self._rounds)

    def values(self, figure):
        """{round: value} of the rounds that count and have such a figure."""
        found = {number: self._figure(r, figure) for number, r in self.rounds_that_count().items()}
        return {number: value for number, value in found.items() if value}

    def median(self, figure):
        """None for what was not measured."""
        values = self.values(figure).values()
        return statistics.median(values) if values else None

    def percentiles(self):
        """[(percent, median latency in us)], ascending; empty for what was not timed."""
        names = [r.get("latency_us", {}) for r in self.rounds_that_count().values()]
        points = [(float(name[1:]), self.median(name + "_us")) for name in (names[0] if names else ())]
        return sorted((percent, us) for percent, us in points if us)


class Document:

    def __init__(self, value, name):
        self.name = name
        self.value = value
        self.machine = value["machine"]
        self.settings = value["settings"]
        self.taken_at = value["taken_at"]
        self.notes = value["notes"]
        self.summary = value["summary"]
        self.left_out = value["left_out"]
        self.cells = {}
        for entry in value["cells"]:
            key = Key(*(entry[part] for part in Key._fields))
            self.cells[key] = Cell(key, entry)

    def _ordered(self, part, known):
        there = list(dict.fromkeys(getattr(key, part) for key in self.cells))
        return [k for k in known if k in there] + [k for k in there if k not in known]

    def kinds(self):
        return self._ordered("kind", kinds.KNOWN)

    def patterns(self):
        return self._ordered("pattern", PATTERNS)

    def paths(self):
        return self._ordered("path", self.settings.get("paths", ()))

    def is_emulated(self, path):
        return any(cell.emulated for key, cell in self.cells.items() if key.path == path)


def parse(text, name):
    try:
        value = json.loads(text)
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise BadDocument("%s: not a document of ./dev perf --json" % name)
        if value.get("version") != VERSION:
            raise BadDocument("%s: version %s, and this release reads %d" % (
                name, value.get("version"), VERSION))
        return Document(value, name)
    except (ValueError, KeyError, TypeError) as wrong:
        raise BadDocument("%s: %s: %s" % (name, type(wrong).__name__, wrong)) from wrong


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return parse(file.read(), path)
    except (OSError, UnicodeDecodeError) as wrong:
        raise BadDocument("%s: %s" % (path, wrong)) from wrong
