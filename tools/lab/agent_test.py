#!/usr/bin/env python3
"""The machine's agent and the host's end of it, over a socket instead of a virtual port."""
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from agent_link import AgentLink

_GUEST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest")
_SERVE = "import agent, sys; agent.Agent(int(sys.argv[1])).run()"
# Nothing here takes long; a wait this long has failed.
PATIENCE_SECONDS = 30


class AgentAndLink(unittest.TestCase):

    def setUp(self):
        ours, theirs = socket.socketpair()
        self.agent = subprocess.Popen([sys.executable, "-c", _SERVE, str(theirs.fileno())],
                                      pass_fds=[theirs.fileno()], cwd=_GUEST,
                                      env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        theirs.close()
        self.link = AgentLink(ours)
        self.output = {1: b"", 2: b""}
        self.wrote = threading.Condition()

    def tearDown(self):
        self.agent.kill()
        self.agent.wait()
        self.link.close()

    def on_output(self, stream, data):
        with self.wrote:
            self.output[stream] += data
            self.wrote.notify_all()

    def start(self, *argv, **options):
        options.setdefault("env", {"PATH": os.environ["PATH"]})
        return self.link.start(argv, on_output=self.on_output, **options)

    def wait_for_output(self, text):
        with self.wrote:
            self.assertTrue(self.wrote.wait_for(lambda: text in self.output[1], PATIENCE_SECONDS))

    def test_a_command_says_what_it_says_and_ends_as_it_ends(self):
        command = self.start("bash", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual(command.wait(PATIENCE_SECONDS), 7)
        self.assertEqual(self.output, {1: b"out\n", 2: b"err\n"})

    def test_output_of_any_bytes_arrives_whole(self):
        command = self.start("python3", "-c",
                             "import sys; sys.stdout.buffer.write(bytes(range(256)) * 4096)")
        self.assertEqual(command.wait(PATIENCE_SECONDS), 0)
        self.assertEqual(self.output[1], bytes(range(256)) * 4096)

    def test_environment_and_folder_are_the_callers(self):
        env = {"PATH": os.environ["PATH"], "ODD": "two\nlines '\"$"}
        self.start("bash", "-c", 'pwd; echo "$ODD"', env=env, folder="/usr").wait(PATIENCE_SECONDS)
        self.assertEqual(self.output[1], b"/usr\ntwo\nlines '\"$\n")

    def test_a_missing_program_ends_as_in_a_shell(self):
        self.assertEqual(self.start("/no/such/program").wait(PATIENCE_SECONDS), 127)
        self.assertIn(b"/no/such/program", self.output[2])

    def test_a_signal_reaches_the_command_and_what_it_started(self):
        command = self.start("bash", "-c", "sleep 1000 & echo up; wait")
        self.wait_for_output(b"up")
        command.kill(signal.SIGKILL)
        self.assertEqual(command.wait(PATIENCE_SECONDS), 128 + signal.SIGKILL)

    def test_heirs_of_its_output_do_not_keep_a_command_from_ending(self):
        command = self.start("bash", "-c", "setsid sleep 1000 & echo $!")
        self.assertEqual(command.wait(PATIENCE_SECONDS), 0)
        os.kill(int(self.output[1]), signal.SIGKILL)

    def test_commands_run_side_by_side(self):
        first = self.start("bash", "-c", "echo up; sleep 1000")
        self.wait_for_output(b"up")
        self.assertEqual(self.start("true").wait(PATIENCE_SECONDS), 0)
        self.assertTrue(first.running())
        first.kill()
        first.wait(PATIENCE_SECONDS)

    def test_a_wait_ends_at_its_time_with_the_command_running(self):
        command = self.start("sleep", "1000")
        self.assertIsNone(command.wait(0.01))
        command.kill()
        command.wait(PATIENCE_SECONDS)

    def test_commands_of_a_machine_that_ended_have_ended(self):
        command = self.start("bash", "-c", "echo up; sleep 1000")
        self.wait_for_output(b"up")
        self.agent.kill()
        self.assertEqual(command.wait(PATIENCE_SECONDS), -1)
        self.assertEqual(self.start("true").wait(PATIENCE_SECONDS), -1)


if __name__ == "__main__":
    unittest.main()
