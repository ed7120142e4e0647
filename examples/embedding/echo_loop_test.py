#!/usr/bin/env python3
"""The C program serves and calls, in its own loop, and so does the echo in C++; each calls either.
The C program has a log, which says what path it took."""
import re
import subprocess
import sys

C_ECHO, CPP_ECHO = sys.argv[1:3]


def served_by(program):
    server = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return server, server.stdout.readline().strip()


def said_by(program, address, text):
    end = subprocess.run([program, address, text], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, check=True, timeout=60)
    if program == C_ECHO:
        assert re.search(r"^I .*: path .* chosen: ", end.stderr, re.MULTILINE), end.stderr
    return end.stdout


def main():
    for server_program in (C_ECHO, CPP_ECHO):
        server, address = served_by(server_program)
        try:
            for client in (C_ECHO, CPP_ECHO):
                for text in ("hello, world", ""):
                    said = said_by(client, address, text)
                    assert said == text + "\n", (server_program, client, said)
            if server_program == C_ECHO:  # it ends well, with its input
                server.stdin.write("not yet\n")
                server.stdin.flush()
                assert said_by(C_ECHO, address, "still there") == "still there\n"
                server.stdin.close()
                assert server.wait(timeout=60) == 0
        finally:
            server.kill()
            server.wait()
    refused = subprocess.run([C_ECHO, "127.0.0.1:1", "x"], stderr=subprocess.PIPE, text=True,
                             timeout=60)
    assert refused.returncode == 1 and "127.0.0.1:1" in refused.stderr, refused
    print("each called either")


if __name__ == "__main__":
    main()
