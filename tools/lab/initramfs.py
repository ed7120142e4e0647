"""Writes an initramfs: an archive in cpio's "newc" format, which Linux unpacks as its first root."""
import os
import stat

_TRAILER = "TRAILER!!!"


def _padding(length):
    return b"\0" * (-length % 4)


def _member(name, number, mode, content):
    encoded = name.encode() + b"\0"
    # inode, mode, owner, group, links, time, size, device (2), device described (2), name, checksum
    fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0]
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return (header + encoded + _padding(len(header) + len(encoded)) + content
            + _padding(len(content)))


def _content(path, mode):
    if stat.S_ISLNK(mode):
        return os.readlink(path).encode()
    if stat.S_ISREG(mode):
        with open(path, "rb") as file:
            return file.read()
    return b""


def archive(folder):
    """The folder's tree as an archive; the same tree always gives the same bytes."""
    members = []
    for where, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(folders + files):
            path = os.path.join(where, name)
            mode = os.lstat(path).st_mode
            members.append((os.path.relpath(path, folder), mode, _content(path, mode)))
    members.append((_TRAILER, 0, b""))
    return b"".join(_member(name, number, mode, content)
                    for number, (name, mode, content) in enumerate(members))
