"""What happens to two machines between which calls are under way, and what must come of it."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    faults: str  # in the language of faults.py
    # Seconds after the last fault until calls succeed again, on emulated machines under load.
    recovery_seconds: float
    # Calls must fail meanwhile: otherwise the fault did not happen.
    calls_fail: bool
    # No call may fail.
    calls_succeed: bool = False
    # The connection cannot survive it: there must be another one afterwards.
    reconnects: bool = False
    # The server's memory is gone, so what the store holds says nothing about earlier calls.
    server_survives: bool = True
    # Seconds after the first fault until callers are told, and no longer only by their deadlines.
    notice_seconds: float = 0  # 0: not asked


# A process that is gone is noticed at once, by the kernel's last words for it.
_PROCESS_GONE_SECONDS = 5
# A machine that is gone says nothing. Heartbeats miss it after 3 s; the rest is for stalls.
_MACHINE_GONE_SECONDS = 8

SCENARIOS = [
    Scenario("killed_server", "0 kill server; 3 start server", recovery_seconds=20,
             calls_fail=True, reconnects=True, server_survives=False,
             notice_seconds=_PROCESS_GONE_SECONDS),
    Scenario("killed_machine", "0 kill machine 1; 14 start machine 1; 14 start server",
             recovery_seconds=40, calls_fail=True, reconnects=True, server_survives=False,
             notice_seconds=_MACHINE_GONE_SECONDS),
    Scenario("cable_cut_2s", "0 cut cable; 2 mend cable", recovery_seconds=40, calls_fail=False),
    Scenario("cable_cut_30s", "0 cut cable; 30 mend cable", recovery_seconds=60, calls_fail=True,
             reconnects=True, notice_seconds=_MACHINE_GONE_SECONDS),
    Scenario("frozen_machine_6s", "0 freeze machine 1; 6 thaw machine 1", recovery_seconds=40,
             calls_fail=True, reconnects=True, notice_seconds=_MACHINE_GONE_SECONDS),
    Scenario("lost_frames", "0 netem 1 loss 3%; 10 calm 1", recovery_seconds=40, calls_fail=False),
    Scenario("late_frames", "0 netem 1 delay 50ms; 8 calm 1", recovery_seconds=30,
             calls_fail=False, calls_succeed=True),
]
