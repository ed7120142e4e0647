"""Reads what callgrind wrote, and says which part of the library each function belongs to."""
import collections
import re

# Parts of Weft, in the order of a table. What is not ours follows.
OURS = ["rpc client", "rpc server", "rpc shared", "C interface", "generated code", "framing",
        "engine", "transport", "core", "abseil"]
OTHERS = ["protobuf", "libfabric", "C library", "C++ library", "benchmark"]

# The object a function is in, if it is not the program itself.
_OBJECTS = [
    (re.compile(r"libfabric|libpsm|libinfinipath|librdmacm|libibverbs|libefa"), "libfabric"),
    (re.compile(r"libprotobuf"), "protobuf"),
    (re.compile(r"libabsl"), "abseil"),
    (re.compile(r"libstdc\+\+|libgcc_s"), "C++ library"),
    (re.compile(r"/libc\.|/ld-|libm\.|libpthread|vdso|vgpreload"), "C library"),
]

# The source file a function of the program begins in; the first that fits.
_FILES = [
    (re.compile(r"\.weft\.(h|cc)$"), "generated code"),
    (re.compile(r"\.pb\.(h|cc)$|google/protobuf/"), "protobuf"),
    (re.compile(r"^bench/"), "benchmark"),
    (re.compile(r"^c/"), "C interface"),
    (re.compile(r"^rpc/(client/|naming/|operation/blocked_caller)"), "rpc client"),
    (re.compile(r"^rpc/server/"), "rpc server"),
    (re.compile(r"^rpc/"), "rpc shared"),
    (re.compile(r"^transport/framing/"), "framing"),
    (re.compile(r"^transport/(engine|poller)"), "engine"),
    (re.compile(r"^transport/"), "transport"),
    (re.compile(r"^core/"), "core"),
    (re.compile(r"absl/"), "abseil"),
]

# The maps of the standard library and of Abseil: their functions, and the files they are made of.
_MAP_FUNCTION = re.compile(r"_Hashtable|_Hash_bytes|_Rb_tree|std::map<|unordered_map|unordered_set|"
                           r"raw_hash_set|flat_hash|node_hash|btree")
_MAP_FILE = re.compile(r"/(hashtable|hashtable_policy|unordered_map|stl_tree|stl_map|stl_set)\.h$|"
                       r"/absl/container/")

_SETTING = re.compile(r"(fl|fi|fe|fn|ob|c\w+)=(.*)")


def part_of(obj, path, function):
    """The part that a function belongs to, by its object, else by its file, else by its name."""
    for pattern, part in _OBJECTS:
        if pattern.search(obj):
            return part
    if "weft::bench::Ends" in function or "weft::bench::CEnds" in function:
        return "benchmark"  # its callbacks, inside of our wrapper for callables
    path = re.sub(r"^/proc/self/cwd/(\./)?(bazel-out/[^/]+/bin/)?", "", path)
    for pattern, part in _FILES:
        if pattern.search(path):
            return part
    # Instances of the standard library's templates, and what has no line numbers.
    if "weft::bench" in function:
        return "benchmark"
    if "google::protobuf" in function:
        return "protobuf"
    return "core" if "weft::" in function or path == "???" else "C++ library"


class Profile(collections.Counter):
    """Self cost by (object, file, function); `files` has the files that each one's code is from,
    with what it has inlined."""

    def __init__(self):
        super().__init__()
        self.files = collections.defaultdict(set)


def read_profile(lines):
    """A Profile. The lines were written with --compress-strings=no."""
    costs = Profile()
    obj = path = function = "???"
    skip_cost = False
    for line in lines:
        setting = _SETTING.match(line)
        if setting:
            key, value = setting[1], setting[2].strip()
            if key == "ob":
                obj = value
            elif key in ("fl", "fi", "fe"):
                path = value
            elif key == "fn":
                function = (obj, path, value)
            elif key == "calls":
                skip_cost = True  # the next line has what was spent inside the callee
        elif line[:1].isdigit() or line[:1] in "+-*":
            fields = line.split()
            if not skip_cost and len(fields) > 1 and isinstance(function, tuple):
                costs[function] += int(fields[1])
                costs.files[function].add(path)
            skip_cost = False
    return costs


def by_part(costs):
    """{part: instructions}, with every part there is."""
    parts = {part: 0 for part in OURS + OTHERS}
    for (obj, path, function), cost in costs.items():
        parts[part_of(obj, path, function)] += cost
    return parts


def by_function(costs):
    """[(instructions, part, function)], the most expensive first."""
    functions = collections.Counter()
    for (obj, path, function), cost in costs.items():
        functions[(part_of(obj, path, function), function)] += cost
    return [(cost, part, function) for (part, function), cost in functions.most_common()]


def map_functions(costs):
    """The functions of ours that are, or have inlined, a map's."""
    found = []
    for key in costs:
        obj, path, function = key
        if part_of(obj, path, function) in ("libfabric", "protobuf", "C library"):
            continue
        if _MAP_FUNCTION.search(function) or any(
                _MAP_FILE.search(file) for file in costs.files[key]):
            found.append(function)
    return sorted(set(found))
