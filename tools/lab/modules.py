"""Which kernel modules the machine loads, and in which order."""
import lzma
import os

import zstd

# Loaded in this order, each with what it depends on.
GROUPS = {
    # To reach the host: its file systems, its cable and its control port.
    "base": ["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_net", "virtio_console"],
    # Verbs and their connection manager. Soft-RoCE computes its checksum with crc32: by a table, as
    # crc32_pclmul saves the vector registers for each packet of 80 bytes, 50 ns of a processor's
    # time and 5 us of an emulated one's.
    "rdma": ["crc32_generic", "crc32c_generic", "ib_uverbs", "rdma_ucm"],
    # Loss and delay, and networks inside of one machine.
    "faults": ["sch_netem", "veth", "bridge"],
    # The kernel's TLS and its ciphers, which a machine could not load later: it has no modprobe.
    "tls": ["ctr", "ghash_generic", "gcm", "chacha", "chacha_generic", "poly1305_generic",
            "chacha20poly1305", "tls"],
    "rxe": ["rdma_rxe"],
    "siw": ["siw"],
}
# What some kernels have as modules; the others have it under another name or in themselves.
_OF_SOME_KERNELS = {"crc32_generic", "crc32c_generic", "ghash_generic", "chacha", "chacha_generic",
                    "poly1305_generic"}


def module_name(file_name):
    """ib_core for ib-core.ko or ib_core.ko.xz; None for other files."""
    base, dot, end = file_name.partition(".ko")
    return base.replace("-", "_") if dot and end in ("", ".xz", ".zst") else None


def index(folders):
    """{module: path} of all modules below the folders; later folders win."""
    found = {}
    for folder in folders:
        for where, _, files in os.walk(folder):
            for name in files:
                if module_name(name):
                    found[module_name(name)] = os.path.join(where, name)
    return found


def read(path):
    with open(path, "rb") as file:
        content = file.read()
    if str(path).endswith(".zst"):
        return zstd.decompress(content)
    return lzma.decompress(content) if str(path).endswith(".xz") else content


def depends(content):
    """The modules that a module's own description names."""
    start = content.find(b"\0depends=")
    if start < 0:
        return []
    text = content[start + len(b"\0depends="):content.index(b"\0", start + 1)].decode()
    return [name.replace("-", "_") for name in text.split(",") if name]


def load_order(roots, dependencies, loaded=()):
    """The roots and all that they need, each after its dependencies, without what is loaded."""
    order = []

    def add(name):
        if name in order or name in loaded:
            return
        for needed in dependencies(name):
            add(needed)
        order.append(name)

    for root in roots:
        add(root)
    return order


def plan(paths, builtin):
    """{group: modules to load}. What is `builtin` needs no loading; groups of which the kernel lacks
    something are left out."""
    contents = {}

    def dependencies(name):
        if name not in contents:
            contents[name] = read(paths[name])
        return depends(contents[name])

    result, loaded = {}, set(builtin)
    for group, roots in GROUPS.items():
        there = [name for name in roots if name in paths or name in builtin]
        missing = set(roots) - set(there) - _OF_SOME_KERNELS
        if group == "base" and missing:
            raise ValueError("the lab needs what this kernel lacks: " + ", ".join(sorted(missing)))
        if missing:
            continue
        result[group] = load_order(there, dependencies, loaded)
        # A device's modules are loaded only where it is asked for: the next can't count on them.
        if group not in ("rxe", "siw"):
            loaded.update(result[group])
    return result
