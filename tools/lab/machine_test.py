#!/usr/bin/env python3
"""How a machine is described to QEMU, and what the host's answers to questions mean."""
import argparse
import pathlib
import resource
import unittest

import accelerator
import host
import lab
import machine
import run


class CommandLine(unittest.TestCase):

    def line(self, **options):
        options = machine.Options(pathlib.Path("/image"), "/shared,folder", **options)
        return machine.command_line(options, agent_fd=5, monitor_fd=6, console_fd=7)

    def netdevs(self, line):
        return [line[i + 1] for i, word in enumerate(line) if word == "-netdev"]

    def test_each_device_has_a_card_of_its_own(self):
        line = self.line(devices=["rxe", "siw"])
        self.assertEqual(self.netdevs(line),
                         ["hubport,hubid=0,id=cable0", "hubport,hubid=1,id=cable1"])
        cards = [word for word in line if word.startswith("virtio-net-pci")]
        self.assertEqual(len({card.split("mac=")[1] for card in cards}), 2)

    def test_two_machines_have_different_cards(self):
        self.assertNotEqual(machine.mac_address(1, 0), machine.mac_address(2, 0))

    def test_a_cable_goes_to_its_card(self):
        self.assertEqual(self.netdevs(self.line(devices=["siw"], cables=["dgram,x"])),
                         ["dgram,x,id=cable0"])

    def test_nodes_have_processors_memory_and_cards_in_turn(self):
        line = self.line(devices=["rxe", "siw", "rxe"], numa_nodes=2, memory_mib=1025)
        numa = [line[i + 1] for i, word in enumerate(line) if word == "-numa"]
        self.assertEqual(numa, ["node,nodeid=0,memdev=memory0", "node,nodeid=1,memdev=memory1",
                                "cpu,node-id=0,socket-id=0", "cpu,node-id=1,socket-id=1"])
        self.assertEqual(line[line.index("-m") + 1], "1024")
        self.assertEqual([word for word in line if word.startswith("memory-backend-ram")],
                         ["memory-backend-ram,id=memory0,size=512M",
                          "memory-backend-ram,id=memory1,size=512M"])
        buses = [word for word in line if word.startswith("pxb,")]
        self.assertEqual([bus.split("numa_node=")[1] for bus in buses], ["1", "0"])
        cards = [word.split("bus=")[1] for word in line if word.startswith("virtio-net-pci")]
        self.assertEqual(cards, ["node0", "node1", "node0"])
        self.assertIn("4,sockets=4,cores=1,threads=1", self.line(numa_nodes=4))

    def test_a_machine_of_one_node_has_no_nodes(self):
        self.assertFalse([word for word in self.line() if "numa" in word or "pxb" in word])

    def test_the_hosts_files_are_read_only(self):
        host_folder = next(word for word in self.line() if word.startswith("local,id=host"))
        self.assertIn("readonly=on", host_folder)

    def test_a_comma_in_a_path_is_no_separator(self):
        self.assertTrue(any("path=/shared,,folder," in word for word in self.line()))

    def test_the_kernel_is_told_devices_number_and_mtu(self):
        options = machine.Options(pathlib.Path("/image"), "/", devices=["rxe", "siw"], number=2,
                                  mtu=4200)
        words = machine.kernel_line(options).split()
        self.assertLessEqual({"weft.device=rxe,siw", "weft.id=2", "weft.mtu=4200"}, set(words))


class Host(unittest.TestCase):

    def test_debian_12_is_supported(self):
        release = host.read_os_release('ID=debian\nVERSION_ID="12"\n')
        self.assertIsNone(host.unsupported(release, "x86_64"))

    def test_others_are_told_why_not(self):
        release = host.read_os_release('PRETTY_NAME="Ubuntu 24.04"\nID=ubuntu\nVERSION_ID="24.04"')
        self.assertIn("Ubuntu 24.04", host.unsupported(release, "x86_64"))
        self.assertIn("aarch64", host.unsupported({}, "aarch64"))

    def test_kvm_is_tried_only_where_the_processor_has_it(self):
        self.assertTrue(accelerator.has_virtualization("model: x\nflags\t: fpu svm sse\n"))
        self.assertFalse(accelerator.has_virtualization("flags : fpu svm_lock\nbugs : svm\n"))
        self.assertFalse(accelerator.has_virtualization(""))


class CommandLineOfTheLab(unittest.TestCase):

    def test_devices(self):
        self.assertEqual(lab.parse_devices("rxe,siw"), ["rxe", "siw"])
        self.assertEqual(lab.parse_devices("rxe,rxe"), ["rxe", "rxe"])
        for wrong in ("", "ib", "rxe,none", "rxe,rxe,rxe,rxe,rxe"):
            with self.assertRaises(argparse.ArgumentTypeError):
                lab.parse_devices(wrong)

    def test_memlock(self):
        self.assertEqual(lab.parse_memlock("65536"), 65536)
        self.assertEqual(lab.parse_memlock("unlimited"), resource.RLIM_INFINITY)
        with self.assertRaises(argparse.ArgumentTypeError):
            lab.parse_memlock("-1")

    def test_nodes(self):
        self.assertEqual(lab.parse_run(["--", "true"]).numa_nodes, 1)
        self.assertEqual(lab.parse_run(["--numa", "2", "--", "true"]).numa_nodes, 2)
        for wrong in ("0", "5", "-1", "two"):
            with self.assertRaises(argparse.ArgumentTypeError):
                lab.parse_nodes(wrong)

    def test_what_follows_two_dashes_is_the_command(self):
        options = lab.parse_run(["--device", "siw", "--", "ls", "--color"])
        self.assertEqual((options.devices, options.command), (["siw"], ["ls", "--color"]))

    def test_another_kernel_is_one_file_or_several(self):
        self.assertEqual(lab.parse_run(["--", "true"]).kernel_debs, [])
        self.assertEqual(lab.parse_run(["--kernel", "a.deb,/b.deb", "--", "true"]).kernel_debs,
                         [pathlib.Path("a.deb"), pathlib.Path("/b.deb")])
        with self.assertRaises(argparse.ArgumentTypeError):
            lab.parse_files("a.deb,")

    def test_perf_runs_on_the_devices_that_the_machine_has(self):
        words = lab.perf_words(lab.parse_perf(["--program", "/bin/perf"]))
        self.assertEqual(words, ["/bin/perf", "--paths=rxe,siw", "--quick", "--repeat=9",
                                 "--seconds=0.1"])
        words = lab.perf_words(lab.parse_perf(["--program=/bin/perf", "--device", "siw", "--",
                                               "--seconds", "2"]))
        self.assertEqual(words, ["/bin/perf", "--paths=siw", "--seconds", "2"])

    def test_one_word_is_a_line_for_the_shell(self):
        self.assertEqual(run.command_words(["a | b"]), ["bash", "-c", "a | b"])
        self.assertEqual(run.command_words(["a", "b c"]), ["a", "b c"])

    def test_a_command_knows_its_addresses(self):
        options = machine.Options("/image", "/shared", number=2, devices=["rxe", "siw"])
        env = run.environment({"PATH": "/bin", "LANG": "C", "PWD": "/outside"}, options)
        self.assertEqual((env["WEFT_LAB_IP_RXE"], env["WEFT_LAB_IP_SIW"], env["WEFT_LAB_IP6"]),
                         ("192.168.77.2", "192.168.78.2", "fd77::2"))
        self.assertEqual(env["LANG"], "C")
        two = run.environment({}, machine.Options("/image", "/shared", devices=["rxe", "rxe"]))
        self.assertEqual((two["WEFT_LAB_IP_RXE"], two["WEFT_LAB_IP_CARD0"], two["WEFT_LAB_IP_CARD1"]),
                         ("192.168.77.1", "192.168.77.1", "192.168.78.1"))
        self.assertNotIn("PWD", env)


if __name__ == "__main__":
    unittest.main()
