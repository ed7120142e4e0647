"""Figures as people read them."""


def _scaled(value, units):
    """`units`: (factor, name), ascending."""
    factor, name = units[0]
    for next_factor, next_name in units[1:]:
        # What rounds to 1000 of a unit is one of the next.
        if value >= 0.9995 * next_factor:
            factor, name = next_factor, next_name
    return _digits(value / factor) + " " + name


def _digits(value):
    """Three significant ones, without zeros that say nothing."""
    if value >= 100:
        return "%.0f" % value
    text = "%.3g" % value
    return text if "e" not in text else "%.4f" % value


def time(us):
    return _scaled(us * 1e3, ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")))


def rate(per_s):
    return _scaled(per_s, ((1, "/s"), (1e3, "k/s"), (1e6, "M/s")))


def bandwidth(gbps):
    return _scaled(gbps * 1e9, ((1, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")))


def size(count):
    for factor, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= factor and count % factor == 0:
            return "%d %s" % (count // factor, name)
    return "%d B" % count


def short_size(count):
    """For the axis, whose title has the unit."""
    return size(count).replace(" ", "").replace("B", "")


def figure(name, value):
    if name.endswith("_us"):
        return time(value)
    return bandwidth(value) if name == "GBps" else rate(value)


def round_ratio(value):
    """Of a mark on an axis."""
    return "%g×" % value


def ratio(value):
    return ("%.2f×" if value < 10 else "%.1f×" if value < 100 else "%.0f×") % value
