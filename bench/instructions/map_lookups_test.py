#!/usr/bin/env python3
"""No map is looked into on the way of a call, by anything of Weft's.

What ran during the calls is taken from callgrind: the functions, and the files of what they have
inlined (where there are line numbers: in optimized builds). Nothing of it may be a map's.
"""
import os
import shutil
import sys
import tempfile
import unittest

import callgrind
import instructions

PROGRAM = os.path.abspath(sys.argv.pop(1))


@unittest.skipUnless(shutil.which("valgrind"), "valgrind is not installed")
class MapLookups(unittest.TestCase):

    def test_a_call_looks_into_no_map(self):
        for path in ("shm", "tcp"):
            for form, outstanding in (("blocking", 1), ("callback", 64), ("callback_struct", 64),
                                      ("balanced", 1), ("c_callback", 64)):
                with tempfile.TemporaryDirectory() as scratch:
                    costs, _ = instructions.run(PROGRAM, path, form, outstanding, 200, scratch)
                self.assertGreater(sum(callgrind.by_part(costs).values()), 200 * 500)
                self.assertEqual(callgrind.map_functions(costs), [], (path, form))


if __name__ == "__main__":
    unittest.main()
