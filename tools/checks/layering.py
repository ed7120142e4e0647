#!/usr/bin/env python3
"""Checks who includes whom.

    layering.py [ROOT]          (the tree of this file by default)

        core <- transport <- rpc <- {c, tools, bench, embed <- examples}  no arrow back
        weft/*.h (the public names of headers) <- {c, tools, bench, embed, examples}, generated code
        rpc/wire, operation <- rpc/coroutine <- rpc/layout, bulk, stream, peer <- {rpc/client <- rpc/memory, naming; rpc/server}

Reads every #include of our C++ files and every import of our .proto files, and prints a line
"FILE:LINE: what is wrong" for each one against the rules below. Status 1 if there was any.
"""
import os
import re
import sys

import source_tree

# Who may include what of ours. Those on top don't know each other, but for examples of embed/.
MAY_INCLUDE = {
    "core": {"core"},
    "transport": {"core", "transport"},
    "weft": {"core", "transport", "rpc", "weft"},
    "rpc": {"core", "transport", "weft", "rpc"},
    "c": {"core", "transport", "weft", "rpc", "c"},
    "bench": {"core", "transport", "weft", "rpc", "bench"},
    "embed": {"core", "transport", "weft", "rpc", "embed"},
    "examples": {"core", "transport", "weft", "rpc", "embed", "examples"},
    "tools": {"core", "transport", "weft", "rpc", "tools"},
}

# Headers of the public face that belong to transport/: they know what it knows, and it uses them.
FACE_OF_TRANSPORT = ("weft/engine.h",)
# What rpc/ may use of the public face: these, and headers that stand there and know nobody of ours.
# All others are names of headers of the inside, which uses those themselves.
FACE_FOR_THE_INSIDE = FACE_OF_TRANSPORT + (
    "weft/channel.h", "weft/server.h", "weft/status.h", "weft/memory.pb.h", "weft/options.pb.h",
    "weft/memory.proto", "weft/options.proto")

# Includes of these start with one of:
FABRIC = ("rdma/", "infiniband/")
FABRIC_FOLDERS = ("transport/ofi/", "bench/raw/")
PROTOBUF = ("google/protobuf/",)
WITHOUT_PROTOBUF = ("core/", "transport/")
WITH_PROTOBUF_ALL_THE_SAME = ("transport/control/",)

# Concrete networks: each knows the seams in transport/*.h, itself and core, and what stands here.
# (The simulated one brings up its connections itself, as transport/control/ does for the others.)
NETWORKS = {"transport/ofi/": (), "transport/shm/": (),
            "transport/sim/": ("transport/framing/", "transport/leases/")}
# The network that tests are written against.
TEST_NETWORK = "transport/sim/"
# What tests of all rooms make their certificates with.
TEST_CERTIFICATES = "transport/tls/testing/"
# Parts that are benchmarked by themselves.
BENCHED = ("transport/framing/", "transport/leases/", "transport/shm/", "transport/sim/",
           "transport/control/network_transport.h")

# Folders whose rooms depend on each other in one direction: each room, and what it may include of
# the folder. What stands at the top of rpc/ joins its rooms; tests join whom they like.
ROOMS = {
    "rpc/": {
        "wire": (),
        "operation": (),
        "layout": ("wire", "operation"),
        "bulk": ("wire", "operation"),
        "coroutine": ("operation",),
        "stream": ("wire", "operation", "coroutine"),
        "peer": ("wire", "operation"),
        "client": ("wire", "operation", "coroutine", "layout", "bulk", "stream", "peer"),
        "memory": ("wire", "operation", "coroutine", "layout", "bulk", "client"),
        "naming": ("operation", "client"),
        "server": ("wire", "operation", "coroutine", "layout", "bulk", "stream", "peer"),
    },
    # What judges knows nothing of what it judges.
    "examples/": {"verify/history": ()},
    "bench/perf/": {
        "cell": (),
        "ends": ("cell",),
        "results": ("cell",),
        "plan": ("cell", "ends", "results"),
        "run": ("cell", "ends", "results", "plan"),
    },
}

# What examples may use of transport/ and rpc/ beside the public face. Tests of them use what they need.
INSIDE_FOR_EXAMPLES = ("transport/buffer_pool.h", "transport/descriptor.h")
# What c/ may: it tells a child of fork() from a full inbox.
INSIDE_FOR_C = ("transport/engine.h",)

# Includers of it are compiled in another way where time stamps are asked for.
TRACE = "core/trace.h"

_TRACED = re.compile(r"^build:trace --per_file_copt=(\S+)@-DWEFT_TRACE")
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
_IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?(")([^"]+)"\s*;')


def top(path):
    return path.split("/", 1)[0]


def folder(path):
    return os.path.dirname(path) + "/"


def wrong_direction(source, target):
    room, known = ("transport" if path in FACE_OF_TRANSPORT else top(path)
                   for path in (source, target))
    if known in MAY_INCLUDE and known not in MAY_INCLUDE[room]:
        return "%s/ must not know %s/" % (room, known)


def inside_uses_a_public_name(source, target):
    if top(source) == "rpc" and top(target) == "weft" and (
            target not in FACE_FOR_THE_INSIDE and not source_tree.is_test(source)):
        return "%s is for programs: include what it names" % target


def vocabulary_knows_the_inside(source, target):
    """weft/*.proto are data of rpc/, and know nothing of it."""
    if top(source) == "weft" and source.endswith(".proto") and top(target) in MAY_INCLUDE and (
            top(target) != "weft"):
        return "weft/ must not know %s/" % top(target)


def fabric_outside(source, target):
    if target.startswith(FABRIC) and not source.startswith(FABRIC_FOLDERS):
        return "<%s> belongs into %s only" % (target, " and ".join(FABRIC_FOLDERS))


def protobuf_below(source, target):
    if (target.startswith(PROTOBUF) or target.endswith(".pb.h")) and (
            source.startswith(WITHOUT_PROTOBUF)
            and not source.startswith(WITH_PROTOBUF_ALL_THE_SAME)):
        return "no protobuf here: only in %s and in rpc/ and above" % (
            ", ".join(WITH_PROTOBUF_ALL_THE_SAME))


def inside_of_transport(source, target):
    """From outside, transport/ is transport/*.h."""
    if top(target) != "transport" or folder(target) == "transport/" or top(source) == "transport":
        return None
    if target.startswith(TEST_NETWORK) and (source_tree.is_test(source) or top(source) == "weft"):
        return None
    if target.startswith(TEST_CERTIFICATES) and source_tree.is_test(source):
        return None
    if target.startswith(BENCHED) and top(source) == "bench":
        return None
    return "%s is the inside of transport/: use transport/*.h" % folder(target)


def seam_knows_a_part(source, target):
    """The seams are above their implementations."""
    if folder(source) == "transport/" and source.endswith(".h") and (
            top(target) == "transport" and folder(target) != "transport/"
            and not source_tree.is_test(source)):
        return "a header of transport/ must not depend on %s" % folder(target)


def network_knows_another_part(source, target):
    for network, also in NETWORKS.items():
        if source.startswith(network) and not source_tree.is_test(source) and (
                top(target) == "transport" and folder(target) != "transport/"
                and not target.startswith((network,) + also)):
            return "a network knows transport/*.h and itself, not %s" % folder(target)


def example_knows_the_inside(source, target):
    """Examples are programs: what they use of Weft, users can. So is c/, for other languages."""
    seen = top(target) == "rpc" or folder(target) == "transport/"  # no deeper: inside_of_transport()
    allowed = INSIDE_FOR_C if top(source) == "c" else INSIDE_FOR_EXAMPLES
    if top(source) in ("c", "embed", "examples") and seen and (
            target not in allowed and not source_tree.is_test(source)):
        return "%s is the inside: programs use weft/*.h" % target


def generator_from_outside(source, target):
    if target.startswith("rpc/plugin/") and not source.startswith("rpc/plugin/"):
        return "rpc/plugin/ is a program, not a library"


def room_knows_another(source, target):
    """Inside of a folder, arrows between its rooms run one way."""
    for parent, rooms in ROOMS.items():
        for room, may_know in rooms.items():
            inside = (parent + room + "/",) + tuple(parent + other + "/" for other in may_know)
            if source.startswith(inside[0]) and not source_tree.is_test(source) and (
                    target.startswith(parent) and not target.startswith(inside)):
                return "%s must not know %s" % (inside[0], folder(target))


RULES = (wrong_direction, inside_uses_a_public_name, vocabulary_knows_the_inside, fabric_outside,
         protobuf_below, inside_of_transport, seam_knows_a_part, network_knows_another_part,
         room_knows_another, example_knows_the_inside, generator_from_outside)


def unrooted(root, source, quote, target):
    """Whether an include in quotes is found beside its file instead of from the top."""
    beside = os.path.join(root, os.path.dirname(source), target)
    return quote == '"' and top(target) not in MAY_INCLUDE and (
        target.startswith(".") or os.path.exists(beside))


def check_line(root, source, line):
    match = (_IMPORT if source.endswith(".proto") else _INCLUDE).match(line)
    if not match:
        return []
    quote, target = match.groups()
    if unrooted(root, source, quote, target):
        return ['"%s": paths start at the top of the tree' % target]
    return [wrong for wrong in (rule(source, target) for rule in RULES) if wrong]


def with_time_stamps(root):
    """Patterns of the files that --config=trace compiles with time stamps; none where it is unknown."""
    try:
        with open(os.path.join(root, ".bazelrc"), encoding="utf-8") as lines:
            found = (_TRACED.match(line) for line in lines)
            return [re.compile(part) for match in found if match for part in match[1].split(",")]
    except FileNotFoundError:
        return []


def without_time_stamps(root):
    """Files that use core/trace.h, by themselves or by a header that does, and have no time stamps:
    `./dev breakdown` would then leave out every call as incomplete."""
    patterns = with_time_stamps(root)
    if not patterns:
        return
    uses = {}  # path: (line, header that it includes)
    for source in source_tree.files(root, (".h", ".cc")):
        with open(os.path.join(root, source), encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                match = _INCLUDE.match(line)
                if match:
                    uses.setdefault(source, []).append((number, match[2]))
    headers = {TRACE} | {source for source in uses if source.endswith(".h")
                         and any(target == TRACE for _, target in uses[source])}
    for source, includes in uses.items():
        if not source.endswith(".cc") or any(pattern.match(source) for pattern in patterns):
            continue
        for number, target in includes:
            if target in headers:
                yield "%s:%d: has time stamps: .bazelrc (build:trace) has to name it" % (
                    source, number)


def check(root):
    """All violations in the tree, as lines."""
    found = list(without_time_stamps(root))
    for source in source_tree.files(root, (".h", ".cc", ".c", ".inc", ".proto")):
        with open(os.path.join(root, source), encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                for wrong in check_line(root, source, line):
                    found.append("%s:%d: %s" % (source, number, wrong))
    return found


def main():
    found = check(sys.argv[1] if len(sys.argv) > 1 else source_tree.this_tree())
    print("\n".join(found) if found else "layering: every include is allowed")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
