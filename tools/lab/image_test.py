#!/usr/bin/env python3
"""What an image is made of: packages, modules, archive, kernel, and the name that they give it."""
import lzma
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import debian
import host
import image
import initramfs
import kernel
import modules


class Key(unittest.TestCase):

    def test_the_same_ingredients_give_the_same_image(self):
        self.assertEqual(image.key({"a": "1", "b": "2"}, [b"x"]),
                         image.key({"b": "2", "a": "1"}, [b"x"]))

    def test_a_new_package_version_gives_a_new_image(self):
        self.assertNotEqual(image.key({"a": "1"}, [b"x"]), image.key({"a": "2"}, [b"x"]))

    def test_a_changed_script_gives_a_new_image(self):
        self.assertNotEqual(image.key({"a": "1"}, [b"x", b"y"]), image.key({"a": "1"}, [b"xy"]))

    def test_another_kernels_file_gives_another_image(self):
        with tempfile.TemporaryDirectory() as folder:
            first, second = (pathlib.Path(folder, name) for name in ("a.deb", "b.deb"))
            first.write_bytes(b"6.12")
            second.write_bytes(b"6.16")
            name = image.key({"a": "1"}, [b"x"], [first, second])
            self.assertEqual(image.key({"a": "1"}, [b"x"], [second, first]), name)
            self.assertNotEqual(image.key({"a": "1"}, [b"x"]), name)
            second.write_bytes(b"6.17")
            self.assertNotEqual(image.key({"a": "1"}, [b"x"], [first, second]), name)

    def test_a_kernels_file_that_is_not_there_is_told(self):
        with self.assertRaisesRegex(host.CannotRun, "no file /no/such.deb"):
            image.ensure(print, [pathlib.Path("/no/such.deb")])

    def test_every_ingredient_exists(self):
        for name in image._INGREDIENTS:
            self.assertTrue((image._SOURCES / name).is_file(), name)


class Debian(unittest.TestCase):

    def test_candidates_are_read_from_apts_policy(self):
        policy = ["make:", "  Installed: (none)", "  Candidate: 4.3-4.1", "  Version table:",
                  "gone:", "  Installed: (none)", "  Candidate: (none)"]
        self.assertEqual(debian.candidates(policy), {"make": "4.3-4.1"})

    def test_the_kernels_source_follows_its_version(self):
        self.assertEqual(debian.source_package("6.1.0-9-amd64"), "linux-source-6.1")
        self.assertEqual(debian.source_package("6.12.48+deb13-amd64"), "linux-source-6.12")


class Modules(unittest.TestCase):

    NEEDS = {"rdma_rxe": ["ib_uverbs", "udp_tunnel"], "ib_uverbs": ["ib_core"], "ib_core": [],
             "udp_tunnel": []}

    def test_what_a_module_needs_is_loaded_before_it(self):
        order = modules.load_order(["rdma_rxe"], self.NEEDS.get)
        self.assertEqual(order, ["ib_core", "ib_uverbs", "udp_tunnel", "rdma_rxe"])

    def test_nothing_is_loaded_twice(self):
        order = modules.load_order(["rdma_rxe", "ib_uverbs"], self.NEEDS.get, {"ib_core"})
        self.assertEqual(order, ["ib_uverbs", "udp_tunnel", "rdma_rxe"])

    def test_dependencies_are_read_from_the_module(self):
        self.assertEqual(modules.depends(b"\x7fELF\0license=GPL\0depends=ib_core,a-b\0name=x\0"),
                         ["ib_core", "a_b"])
        self.assertEqual(modules.depends(b"\x7fELF\0depends=\0name=x\0"), [])

    def test_names_are_as_the_kernel_writes_them(self):
        self.assertEqual(modules.module_name("ib-core.ko"), "ib_core")
        self.assertEqual(modules.module_name("siw.ko.xz"), "siw")
        self.assertEqual(modules.module_name("siw.ko.zst"), "siw")
        self.assertIsNone(modules.module_name("siw.kobold"))


class Plan(unittest.TestCase):

    BUILTIN = {name for group in modules.GROUPS.values() for name in group} - {"siw", "tls", "ctr"}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.paths = {name: os.path.join(folder.name, name + ".ko") for name in ("ctr", "tls")}
        for path in self.paths.values():
            with open(path, "wb") as file:
                file.write(b"\x7fELF\0depends=\0")

    def test_what_is_built_in_needs_no_loading(self):
        plan = modules.plan(self.paths, self.BUILTIN)
        self.assertEqual((plan["base"], plan["tls"]), ([], ["ctr", "tls"]))

    def test_a_device_that_the_kernel_lacks_has_no_group(self):
        plan = modules.plan(self.paths, self.BUILTIN)
        self.assertIn("rxe", plan)
        self.assertNotIn("siw", plan)

    def test_what_only_some_kernels_have_may_be_missing(self):
        self.assertIn("rdma", modules.plan(self.paths, self.BUILTIN - {"crc32_generic"}))

    def test_a_kernel_that_cannot_reach_the_host_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "lacks: 9p, overlay"):
            modules.plan(self.paths, self.BUILTIN - {"overlay", "9p"})

    def test_a_device_without_its_module_is_told(self):
        with tempfile.TemporaryDirectory() as made:
            made = pathlib.Path(made)
            (made / "kernel_release").write_text("6.12\n")
            (made / "module_groups").write_text("base\nrdma\nrxe\n")
            image.check_devices(made, ["none"])
            image.check_devices(made, ["rxe", "rxe"])
            with self.assertRaisesRegex(host.CannotRun, "kernel 6.12 has no device siw; the lab"):
                image.check_devices(made, ["rxe", "siw"])


class Kernel(unittest.TestCase):

    def tree(self, *paths):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for path in paths:
            whole = pathlib.Path(folder.name, path)
            whole.parent.mkdir(parents=True, exist_ok=True)
            whole.touch()
        return pathlib.Path(folder.name)

    def test_one_package_has_all_of_a_kernel(self):
        root = self.tree("boot/vmlinuz-6.1", "lib/modules/6.1/modules.builtin",
                         "lib/modules/6.1/kernel/net/tls/tls.ko")
        tree = kernel.Tree(root)
        self.assertEqual((tree.release, tree.image, tree.modules),
                         ("6.1", root / "boot/vmlinuz-6.1", root / "lib/modules/6.1/kernel"))

    def test_newer_packages_have_all_of_it_in_one_folder(self):
        files = ["usr/lib/modules/7.2/" + name for name in
                 ("vmlinuz", "modules.builtin", "kernel/net/tls/tls.ko.xz")]
        root = self.tree(*files)
        self.assertEqual(kernel.Tree(root).image, root / files[0])
        for left_out in files:
            with self.assertRaisesRegex(ValueError, "linux-binary-.*linux-modules-.*linux-base-"):
                kernel.Tree(self.tree(*[name for name in files if name != left_out]))

    def test_packages_of_no_kernel_or_of_two_are_an_error(self):
        with self.assertRaisesRegex(ValueError, "no kernel; "):
            kernel.Tree(self.tree("usr/share/doc/copyright"))
        with self.assertRaisesRegex(ValueError, "several kernels: 6.1, 7.2"):
            kernel.Tree(self.tree("lib/modules/6.1/kernel/a", "usr/lib/modules/7.2/vmlinuz"))

    @unittest.skipUnless(shutil.which("zstd"), "zstd is not installed")
    def test_a_kernel_compressed_with_zstd_is_found_too(self):
        elf = b"\x7fELF and a kernel"
        packed = subprocess.run(["zstd", "-q", "-c"], input=elf, stdout=subprocess.PIPE).stdout
        looks_like_one = b"loader \x28\xb5\x2f\xfd not a stream "
        self.assertEqual(kernel.extract_vmlinux(looks_like_one + packed + b" size"), elf)

    def test_the_kernel_is_found_behind_bytes_that_look_like_one(self):
        elf = b"\x7fELF and a kernel"
        packed = b"loader \xfd7zXZ\0 not a stream " + lzma.compress(elf) + b" signature"
        self.assertEqual(kernel.extract_vmlinux(packed), elf)

    def test_an_image_without_a_kernel_is_an_error(self):
        with self.assertRaises(ValueError):
            kernel.extract_vmlinux(b"nothing " + lzma.compress(b"here"))


class Initramfs(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        root = self.folder.name
        os.mkdir(os.path.join(root, "bin"))
        for name, content in (("init", "run me"), ("bin/empty", ""), ("bin/odd", "12345")):
            with open(os.path.join(root, name), "w") as file:
                file.write(content)
        os.symlink("odd", os.path.join(root, "bin/link"))
        os.chmod(os.path.join(root, "init"), 0o755)

    def tearDown(self):
        self.folder.cleanup()

    def test_the_same_tree_gives_the_same_bytes(self):
        self.assertEqual(initramfs.archive(self.folder.name), initramfs.archive(self.folder.name))

    def test_members_stand_where_the_format_wants_them(self):
        members = {}
        data = initramfs.archive(self.folder.name)
        at = 0
        while True:
            self.assertEqual(data[at:at + 6], b"070701")
            fields = [int(data[at + 6 + 8 * i:at + 14 + 8 * i], 16) for i in range(13)]
            mode, size, name_size = fields[1], fields[6], fields[11]
            name = data[at + 110:at + 110 + name_size - 1].decode()
            at += (110 + name_size + 3) // 4 * 4
            if name == "TRAILER!!!":
                break
            members[name] = (mode & 0o777, data[at:at + size])
            at += (size + 3) // 4 * 4
        self.assertEqual(set(members), {"init", "bin", "bin/empty", "bin/odd", "bin/link"})
        self.assertEqual(members["init"], (0o755, b"run me"))
        self.assertEqual(members["bin/odd"][1], b"12345")
        self.assertEqual(members["bin/link"][1], b"odd")


if __name__ == "__main__":
    unittest.main()
