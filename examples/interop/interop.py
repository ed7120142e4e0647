#!/usr/bin/env python3
"""Runs the interop scenarios between two processes.

    interop.py BIN_DIR [OPTION of interop_client]...        (--paths LIST: shm,tcp by default)

Starts interop_server, lets interop_client run the scenarios, whose last line is "N passed, N failed",
and stops the server. Status 1 if a scenario has failed, or the server did not end well.
"""
import os
import signal
import subprocess
import sys

# How long the server may take to leave; it needs milliseconds.
STOP_SECONDS = 30

# Before a command: it ends with this process, also when nothing here can run any more.
ENDS_WITH_US = ["setpriv", "--pdeathsig", "KILL"]


def start_server(bin_dir):
    """The server, and its address."""
    server = subprocess.Popen(ENDS_WITH_US + [os.path.join(bin_dir, "interop_server")],
                              stdout=subprocess.PIPE, text=True)
    line = server.stdout.readline()  # written once clients can connect
    if not line:
        sys.exit("interop: interop_server did not start")
    return server, line.split()[-1]


def stop_server(server):
    """Returns its exit status."""
    server.terminate()
    try:
        return server.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        return server.wait()


def main(bin_dir, *options):
    # Ctrl-C and SIGTERM alike: the client is killed, and the server stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    server, address = start_server(bin_dir)
    try:
        client = subprocess.run(ENDS_WITH_US + [os.path.join(bin_dir, "interop_client"),
                                                "--server=" + address, *options])
    finally:
        ended = stop_server(server)
    if client.returncode not in (0, 1):  # with these it has counted
        print("interop: interop_client ended with status %d" % client.returncode, file=sys.stderr)
    if ended != 0:
        print("interop: interop_server ended with status %d" % ended, file=sys.stderr)
    return int(client.returncode != 0 or ended != 0)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
