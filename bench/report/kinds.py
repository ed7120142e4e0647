"""How each kind of end is called and drawn, everywhere: one colour, one mark.

The colours are in page.css, as --raw, --weft, ...; kinds that nobody has heard of share three.
"""
import collections
import zlib

# `corners` of the mark around (0, 0), None for a circle; `mark` and `ascii` in a terminal, and its
# colour there.
Look = collections.namedtuple("Look", "label corners mark ascii colour")

_SQUARE = ((-1, -1), (1, -1), (1, 1), (-1, 1))
_UP = ((0, -1.3), (1.2, 0.9), (-1.2, 0.9))
_DOWN = ((0, 1.3), (1.2, -0.9), (-1.2, -0.9))
_RIGHT = ((1.3, 0), (-0.9, 1.2), (-0.9, -1.2))
_LEFT = ((-1.3, 0), (0.9, 1.2), (0.9, -1.2))
_WIDE = ((-1.5, -0.7), (1.5, -0.7), (1.5, 0.7), (-1.5, 0.7))
_TALL = ((-0.7, -1.5), (0.7, -1.5), (0.7, 1.5), (-0.7, 1.5))
_HIGH = ((0, -1.6), (0.9, 0.9), (-0.9, 0.9))
_DIAMOND = ((0, -1.4), (1.4, 0), (0, 1.4), (-1.4, 0))

# In the order in which they are listed.
KNOWN = {
    "raw": Look("raw libfabric", _SQUARE, "□", "o", "\033[90m"),
    "weft": Look("Weft", None, "●", "*", "\033[94m"),
    "weft_tls": Look("Weft, TLS", _WIDE, "◉", "@", "\033[34m"),
    "aes": Look("AES-256-GCM, one core", _TALL, "▮", "|", "\033[37m"),
    "grpc": Look("gRPC", _UP, "▲", "^", "\033[33m"),
    "grpc_tls": Look("gRPC, TLS", _HIGH, "△", "A", "\033[93m"),
    "ucx": Look("UCX", _DIAMOND, "◆", "#", "\033[32m"),
    "sockets": Look("plain sockets", _DOWN, "▼", "x", "\033[35m"),
    "sockets_single": Look("plain sockets, single", _RIGHT, "▶", ">", "\033[31m"),
    "sockets_blocking": Look("plain sockets, blocking", _LEFT, "◀", "<", "\033[36m"),
}

_OTHERS = 3


def label(kind):
    return KNOWN[kind].label if kind in KNOWN else kind


def css_class(kind):
    if kind in KNOWN:
        return "kind-" + kind
    return "kind-other%d" % (zlib.crc32(kind.encode()) % _OTHERS)


def corners(kind):
    return KNOWN[kind].corners if kind in KNOWN else None
