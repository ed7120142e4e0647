"""Judges a scenario by what the witness said: pure functions of its lines.

A line is (seconds, event), the events of examples/verify/witness/kv_witness.cc.
"""
import dataclasses

# The machines of the lab stall for about a second now and then; what the witness saw of it itself
# is added.
_LATE_MS = 1500
# Periods in a row without a failure make a calm: two seconds.
CALM_PERIODS = 8
# Files that the C library and the allocator keep may come later than the first look.
_RESIDENT_GROWTH_KIB = 64 << 10
# Pools of large messages keep the buffers of the time when most were under way, which is after a
# fault, when all that waited is sent. Fewer than the calls that a fault hits, so that a registration
# lost with each is found.
_POOL_GROWTH = {"mr": 16}


@dataclasses.dataclass
class Testimony:
    """Everything that is known about one run of a scenario."""
    events: list          # (seconds, event) of the witness
    fault_at: float       # when the first fault began
    restored_at: float    # when the last one was over
    witness_status: int   # exit status
    server_status: int
    path: str             # that the scenario is about: "tcp", "verbs"
    held_before: dict     # what -> how many, when calls were calm before the fault
    held_after: dict      # the same, when they were calm again
    held_at_end: dict     # when witness and server had ended; should be nothing


def failures(event):
    return event["not_sent"] + event["may_have_run"] + event["wrong"]


def periods(events, start=0.0, end=float("inf")):
    return [(at, event) for at, event in events
            if event["event"] == "period" and start <= at < end]


def is_calm(events, since):
    """Whether so many periods in a row, all after `since`, saw calls succeed and none fail. (Not the
    last ones: the very last is cut short by the end of the calls.)"""
    row = 0
    # A period that ends right after `since` may have begun before it.
    for _, event in periods(events, since)[1:]:
        row = row + 1 if event["ok"] > 0 and failures(event) == 0 else 0
        if row == CALM_PERIODS:
            return True
    return False


def noticed_at(testimony):
    """When the channel gave the connection up after the fault; None: never.

    A caller is told UNAVAILABLE then. Where each call under way has met its own deadline before
    that, none is left to be told: the channel has no path for a while.
    """
    for at, event in periods(testimony.events, testimony.fault_at):
        if failures(event) > event["deadlines"] or not event["path"]:
            return at
    return None


def recovered_at(testimony):
    """When the first call succeeded after all was restored; None: never."""
    for at, event in periods(testimony.events, testimony.restored_at):
        if event["ok"] > 0:
            return at
    return None


def last_event(events, kind):
    return next((event for _, event in reversed(events) if event["event"] == kind), None)


def _calls(end):
    """Each call ends once, in time, with a status that says what to do."""
    yield end["lost"], "%d calls never ended" % end["lost"]
    yield end["ended_twice"], "%d calls ended twice" % end["ended_twice"]
    late_ms = _LATE_MS + end["longest_stall_ms"]
    yield end["latest_ms"] > late_ms, "a call ended %d ms after its deadline, and %d are excused" % (
        end["latest_ms"], late_ms)
    yield end["first_wrong"], "a wrong end of a call: " + end["first_wrong"]


def _store(end):
    yield end["missing"], "%d records are missing although their Put was OK" % end["missing"]
    yield end["ghosts"], "%d records are there although their Put was 'not sent'" % end["ghosts"]
    yield end["unread"], "%d records could not be compared" % end["unread"]


def _course(scenario, testimony, end):
    """What had to fail failed, what had to go on went on."""
    before = periods(testimony.events, end=testimony.fault_at)
    meanwhile = periods(testimony.events, testimony.fault_at)
    failed = sum(failures(event) for _, event in meanwhile)
    yield not any(event["ok"] for _, event in before), "no call succeeded before the fault"
    yield scenario.calls_fail and not failed, "no call failed: did the fault happen?"
    yield scenario.calls_succeed and failed, "%d calls failed, and none had to" % failed
    yield (scenario.reconnects and end["connects"] < 2,
           "the connection survived what it can't survive")
    noticed = noticed_at(testimony)
    if scenario.notice_seconds:
        late = noticed is None or noticed > testimony.fault_at + scenario.notice_seconds
        yield late, "callers were not told within %g s" % scenario.notice_seconds
    recovered = recovered_at(testimony)
    late = recovered is None or recovered > testimony.restored_at + scenario.recovery_seconds
    yield late, "no call succeeded within %g s after all was restored" % scenario.recovery_seconds
    yield not is_calm(testimony.events, testimony.restored_at), "calls were never calm again"
    paths = {event["path"] for _, event in before} | {end["path"]}
    yield paths != {testimony.path}, "calls took the paths %s instead of %s" % (
        sorted(paths), testimony.path)


def _leaks(testimony, end):
    for what in ("outstanding", "abandoned", "queued"):
        yield end[what], "%d calls are still %s in the channel" % (end[what], what)
    start = last_event(testimony.events, "connected")
    # From the first connection on: what grows belongs to connections that are gone.
    growth = end["resident_kib"] - start["resident_kib"]
    yield growth > _RESIDENT_GROWTH_KIB, "the client grew by %d KiB" % growth
    for what in sorted(testimony.held_after):
        before, after = testimony.held_before.get(what, 0), testimony.held_after[what]
        growth = _POOL_GROWTH.get(what.split()[-1], 0)
        yield after > before + growth, "%s: %d before the fault, %d afterwards" % (what, before, after)
    for what, number in sorted(testimony.held_at_end.items()):
        yield number, "%s: %d are left when all processes have ended" % (what, number)


def verdict(scenario, testimony):
    """What is wrong, a line each; [] if nothing is."""
    end = last_event(testimony.events, "end")
    if end is None:
        return ["the witness did not testify (status %s)" % testimony.witness_status]
    checks = [
        *_calls(end), *_course(scenario, testimony, end), *_leaks(testimony, end),
        (testimony.witness_status != 0, "the witness ended with %s" % testimony.witness_status),
        (testimony.server_status != 0, "the server ended with %s" % testimony.server_status)]
    if scenario.server_survives:
        checks += _store(end)
    return [text for wrong, text in checks if wrong]


def figures(testimony):
    """What happened, for a person, in a line."""
    seen = [event for _, event in periods(testimony.events)]
    words = ["%d calls" % sum(event["ok"] + failures(event) for event in seen)]
    for what, text in (("not_sent", "not sent"), ("may_have_run", "may have run")):
        number = sum(event[what] for event in seen)
        if number:
            words.append("%d %s" % (number, text))
    noticed, recovered = noticed_at(testimony), recovered_at(testimony)
    if noticed is not None:
        words.append("told after %.1f s" % (noticed - testimony.fault_at))
    if recovered is not None:
        words.append("back after %.1f s" % (recovered - testimony.restored_at))
    end = last_event(testimony.events, "end")
    if end is not None:
        words.append("%d connections" % end["connects"])
        words.append("latest end %d ms after its deadline" % end["latest_ms"])
    return ", ".join(words)
