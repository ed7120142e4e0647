#!/usr/bin/env python3
"""Costs are taken from callgrind's file once each, and belong to the part they are written in."""
import unittest

import callgrind

PROFILE = """\
version: 1
positions: line
events: Ir

ob=/bin/measured_calls
fl=/proc/self/cwd/transport/engine.cc
fn=weft::Engine::Poll(int)
120 10
fi=/proc/self/cwd/./core/slab.h
33 4
fe=/proc/self/cwd/transport/engine.cc
+1 2
cob=/usr/lib/libfabric.so.1
cfi=???
cfn=0x00001000
calls=7 0
* 5000
fl=/proc/self/cwd/./core/function.h
fn=weft::Function<void (), 48ul>::operator()()
12 6
fl=/usr/include/c++/12/bits/basic_string.tcc
fn=std::string::_M_replace(unsigned long)
100 1
ob=/usr/lib/libfabric.so.1
fl=???
fn=0x00001000
0 5000
""".splitlines()


class Profile(unittest.TestCase):

    def test_what_a_function_inlines_is_its_own(self):
        self.assertEqual(callgrind.by_part(callgrind.read_profile(PROFILE))["engine"], 16)

    def test_what_it_calls_is_not(self):
        parts = callgrind.by_part(callgrind.read_profile(PROFILE))
        self.assertEqual(parts["libfabric"], 5000)
        self.assertEqual(sum(parts.values()), 5023)

    def test_functions_come_with_their_part_most_expensive_first(self):
        functions = callgrind.by_function(callgrind.read_profile(PROFILE))
        self.assertEqual([entry[:2] for entry in functions],
                         [(5000, "libfabric"), (16, "engine"), (6, "core"), (1, "C++ library")])


class Maps(unittest.TestCase):

    def functions(self, lines):
        profile = ["ob=/bin/measured_calls", "fl=/proc/self/cwd/rpc/client/channel.cc"] + lines
        return callgrind.map_functions(callgrind.read_profile(profile))

    def test_code_without_maps_has_none(self):
        self.assertEqual(callgrind.map_functions(callgrind.read_profile(PROFILE)), [])

    def test_a_map_that_is_called_is_seen(self):
        name = "std::_Hashtable<int, weft::Call>::find(int const&)"
        self.assertEqual(self.functions(["fn=" + name, "1 3"]), [name])

    def test_a_map_that_is_inlined_is_seen(self):
        self.assertEqual(
            self.functions(["fn=f", "1 3", "fi=/usr/include/c++/12/bits/hashtable.h", "7 2"]),
            ["f"])


class Parts(unittest.TestCase):

    def part(self, path, function="f"):
        return callgrind.part_of("/bin/measured_calls", "/proc/self/cwd/" + path, function)

    def test_both_ends_of_a_call_are_told_apart(self):
        self.assertEqual(self.part("rpc/client/client_traffic.cc"), "rpc client")
        self.assertEqual(self.part("rpc/server/server_call.cc"), "rpc server")
        self.assertEqual(self.part("./rpc/wire/frame.h"), "rpc shared")

    def test_the_c_interface_is_a_part_of_its_own(self):
        self.assertEqual(self.part("c/channel.cc", "weft_call_start"), "C interface")
        self.assertEqual(self.part("core/slab.h"), "core")

    def test_generated_code_is_ours_or_protobufs(self):
        self.assertEqual(self.part("bazel-out/k8-opt/bin/bench/rpc/echo.weft.cc"),
                         "generated code")
        self.assertEqual(self.part("bazel-out/k8-opt/bin/bench/rpc/echo.pb.cc"), "protobuf")

    def test_the_links_are_transport_and_framing_is_not(self):
        self.assertEqual(self.part("transport/ofi/shm_link.cc"), "transport")
        self.assertEqual(self.part("transport/framing/batch_sender.cc"), "framing")

    def test_a_template_instance_belongs_to_what_it_is_made_for(self):
        self.assertEqual(callgrind.part_of("/bin/x", "/usr/include/c++/12/bits/stl_vector.h",
                                           "std::vector<weft::Slot*>::push_back"), "core")

    def test_libraries_are_told_by_their_object(self):
        self.assertEqual(callgrind.part_of("/usr/lib/libabsl_status.so.1", "???", "f"), "abseil")
        self.assertEqual(callgrind.part_of("/usr/lib/libc.so.6", "???", "memcpy"), "C library")


if __name__ == "__main__":
    unittest.main()
