"""Reads the screenshots of a browser: PNG with 8 bits per channel, RGB or RGBA, not interlaced."""
import struct
import zlib


class Picture:

    def __init__(self, width, height, channels, rows):
        self.width, self.height = width, height
        self._channels, self._rows = channels, rows

    def colours(self):
        """{(red, green, blue): how many pixels}"""
        found = {}
        for row in self._rows:
            for at in range(0, len(row), self._channels):
                colour = tuple(row[at:at + 3])
                found[colour] = found.get(colour, 0) + 1
        return found


def _chunks(data):
    at = 8
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        yield kind, data[at + 8:at + 8 + size]
        at += 12 + size


def _paeth(left, up, corner):
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))


def _unfilter(kind, row, previous, step):
    """In place: each byte is stored as its difference to what its neighbours predict."""
    if kind == 2:
        for i, up in enumerate(previous):
            row[i] = (row[i] + up) & 255
    elif kind in (1, 3, 4):
        for i, up in enumerate(previous):
            left, corner = (row[i - step], previous[i - step]) if i >= step else (0, 0)
            row[i] = (row[i] + {1: left, 3: (left + up) // 2, 4: _paeth(left, up, corner)}[kind]) & 255


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("%s: not a PNG" % path)
    packed, header = b"", None
    for kind, content in _chunks(data):
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", content)
        elif kind == b"IDAT":
            packed += content
    width, height, depth, colour, _, _, interlace = header
    if depth != 8 or colour not in (2, 6) or interlace:
        raise ValueError("%s: %d bits, colour type %d, interlace %d" % (path, depth, colour, interlace))
    step = 3 if colour == 2 else 4
    plain, size, rows, previous = zlib.decompress(packed), width * step, [], bytes(width * step)
    for at in range(0, len(plain), size + 1):
        row = bytearray(plain[at + 1:at + 1 + size])
        _unfilter(plain[at], row, previous, step)
        rows.append(row)
        previous = row
    return Picture(width, height, step, rows)
