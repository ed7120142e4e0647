#!/usr/bin/env python3
"""The judge of the two-machine scenarios accepts a good testimony, and finds each thing wrong."""
import dataclasses
import unittest

import faults
import judge
import raftkv_command
import rehearsal
from scenarios import SCENARIOS, Scenario

SCENARIO = Scenario("test", "0 cut cable", recovery_seconds=5, calls_fail=True, reconnects=True,
                    notice_seconds=3)


def period(ok=25, **others):
    event = dict(event="period", ok=ok, not_sent=0, may_have_run=0, deadlines=0, wrong=0,
                 connects=1, path="tcp", error="")
    return {**event, **others}


def ending(**others):
    event = dict(event="end", lost=0, ended_twice=0, latest_ms=20, longest_stall_ms=10,
                 first_wrong="", missing=0, ghosts=0, unread=0, outstanding=0, abandoned=0,
                 queued=0, connects=2, path="tcp", resident_kib=1100)
    return {**event, **others}


def every_quarter(start, events):
    return [(start + 0.25 * number, event) for number, event in enumerate(events)]


def testimony(meanwhile=None, after=None, end=None, **others):
    """Calm for 5 s, a fault for 2 s, calm for 5 s, the end."""
    if meanwhile is None:
        meanwhile = [period(0, not_sent=5)] * 8
    events = [(0.0, {"event": "connected", "resident_kib": 1000}),
              *every_quarter(0.25, [period()] * 19), *every_quarter(5.0, meanwhile),
              *every_quarter(7.0, [period()] * 20 if after is None else after)]
    events.append((13.0, end or ending()))
    facts = dict(events=events, fault_at=5.0, restored_at=7.0, witness_status=0, server_status=0,
                 path="tcp", held_before={"files": 9}, held_after={"files": 9}, held_at_end={"qp": 0})
    return judge.Testimony(**{**facts, **others})


class Verdict(unittest.TestCase):

    def expect(self, wrong, given, scenario=SCENARIO):
        found = judge.verdict(scenario, given)
        self.assertEqual(len(found), 1, found)
        self.assertIn(wrong, found[0])

    def test_a_good_testimony_passes(self):
        self.assertEqual(judge.verdict(SCENARIO, testimony()), [])

    def test_no_testimony_fails(self):
        given = testimony()
        given.events.pop()
        self.expect("did not testify", given)

    def test_calls_end_exactly_once(self):
        self.expect("3 calls never ended", testimony(end=ending(lost=3)))
        self.expect("1 calls ended twice", testimony(end=ending(ended_twice=1)))

    def test_calls_end_in_time_but_for_the_machines_own_stalls(self):
        self.expect("2500 ms after", testimony(end=ending(latest_ms=2500)))
        self.assertEqual(
            judge.verdict(SCENARIO, testimony(end=ending(latest_ms=2500, longest_stall_ms=1200))),
            [])

    def test_a_wrong_status_is_quoted(self):
        self.expect("INTERNAL: odd", testimony(end=ending(first_wrong="INTERNAL: odd")))

    def test_the_store_agrees_with_what_callers_were_told(self):
        self.expect("missing", testimony(end=ending(missing=1)))
        self.expect("not sent", testimony(end=ending(ghosts=1)))
        self.expect("compared", testimony(end=ending(unread=1)))

    def test_a_store_that_was_lost_is_not_compared(self):
        forgets = dataclasses.replace(SCENARIO, server_survives=False)
        self.assertEqual(judge.verdict(forgets, testimony(end=ending(missing=1))), [])

    def test_a_fault_without_an_effect_is_found(self):
        found = judge.verdict(SCENARIO, testimony(meanwhile=[period()] * 8))
        self.assertTrue(any("did the fault happen" in text for text in found), found)

    def test_callers_are_told_in_time(self):
        waits = [period(0, may_have_run=5, deadlines=5)] * 8
        self.expect("not told within 3 s", testimony(meanwhile=waits))

    def test_a_channel_without_a_path_has_noticed_though_no_call_was_left_to_be_told(self):
        # A cable was cut, the deadlines of all calls came first, and new ones waited in the queue.
        waits = [period(0, may_have_run=5, deadlines=5)] * 4
        lost = [period(0, not_sent=5, deadlines=5, path="")] * 4
        self.assertEqual(judge.verdict(SCENARIO, testimony(meanwhile=waits + lost)), [])

    def test_failures_that_no_fault_excuses_are_found(self):
        gentle = dataclasses.replace(SCENARIO, calls_fail=False, calls_succeed=True,
                                     reconnects=False, notice_seconds=0)
        self.assertEqual(judge.verdict(gentle, testimony(meanwhile=[period()] * 8)), [])
        self.expect("1 calls failed", testimony(meanwhile=[period(not_sent=1)]), gentle)

    def test_a_connection_that_should_be_gone_is_found(self):
        self.expect("survived", testimony(end=ending(connects=1)))

    def test_recovery_has_a_limit(self):
        self.expect("no call succeeded within 5 s",
                    testimony(after=[period(0, not_sent=5)] * 24 + [period()] * 10))

    def test_calls_become_calm_again(self):
        unsteady = [period(), period(not_sent=1)] * 10
        self.expect("never calm again", testimony(after=unsteady))

    def test_a_last_period_without_calls_is_no_unrest(self):
        # The client had been told to stop right after the period before it.
        given = testimony(after=[period()] * 20 + [period(0)])
        self.assertEqual(judge.verdict(SCENARIO, given), [])

    def test_another_path_than_the_one_asked_for_is_found(self):
        self.expect("instead of verbs", testimony(path="verbs"))

    def test_leaks_are_found(self):
        self.expect("abandoned", testimony(end=ending(abandoned=1)))
        self.expect("files: 9 before the fault, 10 afterwards", testimony(held_after={"files": 10}))
        self.expect("qp: 1 are left", testimony(held_at_end={"qp": 1}))
        self.expect("grew by", testimony(end=ending(resident_kib=1000 + (65 << 10))))

    def test_pools_may_grow_a_little_and_connections_not(self):
        def held(what, before, after):
            what = "machine 1, RDMA objects of type " + what
            return testimony(held_before={what: before}, held_after={what: after})

        self.assertEqual(judge.verdict(SCENARIO, held("mr", 3, 19)), [])
        self.expect("20 afterwards", held("mr", 3, 20))
        self.expect("4 afterwards", held("qp", 3, 4))

    def test_processes_end_well(self):
        self.expect("the server ended with 139", testimony(server_status=139))
        self.expect("the witness ended with None", testimony(witness_status=None))


class Lines(unittest.TestCase):

    def test_what_is_no_event_is_passed_over(self):
        self.assertIsNone(rehearsal.parse_line("process 12"))
        self.assertIsNone(rehearsal.parse_line("12"))
        self.assertEqual(rehearsal.parse_line('{"event": "end"}'), {"event": "end"})

    def test_rdma_objects_are_summed_over_devices(self):
        text = '[{"ifindex":3,"ifname":"rxe0","qp":2,"mr":1},{"ifindex":4,"ifname":"siw0","qp":1}]'
        self.assertEqual(rehearsal.rdma_objects(text), {"qp": 3, "mr": 1})
        self.assertEqual(rehearsal.rdma_objects(""), {})


class Faults(unittest.TestCase):

    def test_a_script_is_a_list_of_steps(self):
        self.assertEqual(
            faults.parse("0 kill server; 1.5 netem 1 loss 5% delay 2ms;2 kill machine 2; 3 mend cable"),
            [(0, "kill", ["server"]), (1.5, "netem", ["1", "loss", "5%", "delay", "2ms"]),
             (2, "kill machine", ["2"]), (3, "mend cable", [])])

    def test_a_cable_may_be_one_of_several(self):
        cut = []

        class Machines:
            def cut_cable(self, card=None):
                cut.append(card)

        stage = faults.Stage(Machines(), {})
        for step in faults.parse("0 cut cable; 1 cut cable 1; 2 cut cable 0"):
            stage.do(step)
        self.assertEqual(cut, [None, 1, 0])

    def test_what_is_wrong_is_said(self):
        for script, part in (("cut cable", "seconds"), ("1 cut", "no fault"), ("1 burn 2", "no fault"),
                             ("1 cut cable here", "no fault"), ("1 cut cable 0 1", "no fault"),
                             ("2 cut cable; 1 mend cable", "order of time")):
            with self.assertRaisesRegex(ValueError, part):
                faults.parse(script)

    def test_every_scenario_can_be_played(self):
        names = [scenario.name for scenario in SCENARIOS]
        self.assertEqual(len(names), len(set(names)))
        for scenario in SCENARIOS:
            self.assertTrue(faults.parse(scenario.faults), scenario.name)


def said_by(member, term=4, leader=3, applied=12, more=""):
    """What `raftkv_admin status` says of one member."""
    return ("192.168.77.1:%d: member %d, term %d, last entry 12, state of entry %d, 7 records; "
            "leader: %s\n  7 commands in 5 entries and 2 barriers proposed, 0 snapshots taken, 0 "
            "restored\n%s  member 1 at 192.168.77.1:4701: voter, over verbs\n"
            "  member 3 at 192.168.77.2:4703: voter\n" % (
                4705 + member, member, term, applied,
                "%d at 192.168.77.2:4708" % leader if leader else "unknown", more))


class RaftKv(unittest.TestCase):

    def test_members_that_say_the_same_agree(self):
        found = raftkv_command.statuses("".join(map(said_by, (1, 2, 3))))
        self.assertTrue(raftkv_command.agree(found))
        self.assertEqual(raftkv_command.leader_of(found), 3)
        self.assertEqual(found[3]["paths"], {"verbs"})

    def test_what_differs_is_no_agreement(self):
        for odd in (dict(term=5), dict(leader=0), dict(applied=11),
                    dict(more="  does not vote until a leader has made up for it\n")):
            with self.subTest(odd=odd):
                text = said_by(1) + said_by(2, **odd) + said_by(3)
                self.assertFalse(raftkv_command.agree(raftkv_command.statuses(text)))
        self.assertFalse(raftkv_command.agree(raftkv_command.statuses(
            said_by(1) + "192.168.77.1:4707: UNAVAILABLE: no answer\n" + said_by(3))))

    def test_of_two_leaders_the_later_one_counts(self):
        found = raftkv_command.statuses(
            said_by(1, term=5, leader=1) + said_by(3, more="  31 messages acknowledged by their "
                                                   "writes alone\n"))
        self.assertEqual(raftkv_command.leader_of(found), 1)
        self.assertEqual(found[3]["acknowledged"], 31)

    def test_faults_are_of_the_language(self):
        for scenario in raftkv_command.SCENARIOS:
            for what in (scenario.breaks, scenario.mends):
                self.assertEqual(len(faults.parse("0 " + what)), 1)


if __name__ == "__main__":
    unittest.main()
