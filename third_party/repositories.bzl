"""The installed libraries that Weft uses, one repository each.

A repository holds links to one library's headers and BUILD files with the
labels that the library's own Bazel build has, so code written for those needs
no change. A project that embeds Weft can define a repository of the same name
first; it then wins.

  LIBFABRIC_ROOT, PROTOBUF_ROOT, ABSL_ROOT, OPENSSL_ROOT, ISAL_ROOT, CARES_ROOT,
  CURL_ROOT, GTEST_ROOT, BENCHMARK_ROOT

choose another prefix: `export LIBFABRIC_ROOT=/opt/libfabric`, or for good
`build --repo_env=LIBFABRIC_ROOT=/opt/libfabric` in user.bazelrc.
"""

load(
    "//third_party:installed.bzl",
    "find",
    "headers_rule",
    "library_rule",
    "link_flags",
    "link_headers",
    "write_package",
)

def _installed(implementation, root_variable, attrs = {}):
    return repository_rule(
        implementation = implementation,
        attrs = attrs,
        # Looked at again when one of these changes, or on `bazel sync --configure`.
        environ = [root_variable, "PKG_CONFIG_PATH", "PATH"],
        configure = True,
        local = True,
    )

# --- libfabric -------------------------------------------------------------

def _libfabric_impl(ctx):
    found = find(ctx, "LIBFABRIC_ROOT", "fabric", "libfabric", "rdma/fabric.h", "libfabric-dev")

    # The kernel's own headers live in rdma/ too: take only libfabric's.
    names = [entry.basename for entry in ctx.path(found.include + "/rdma").readdir()]
    link_headers(ctx, found, [
        "rdma/" + name
        for name in names
        if name in ["fabric.h", "providers"] or (name.startswith("fi_") and name.endswith(".h"))
    ])
    flags = link_flags(ctx, found, "libfabric", ["-lfabric"])

    # Weft loads the library (transport/ofi/fabric_library.h), and is only told where to look for it.
    where = [flag for flag in flags if flag.startswith("-Wl,-rpath")]
    write_package(ctx, "", [
        headers_rule("headers", where),
        library_rule("libfabric", ":headers", flags),
    ])

_libfabric = _installed(_libfabric_impl, "LIBFABRIC_ROOT")

# --- protobuf --------------------------------------------------------------

# The compiler, and the .proto files that come with it.
_PROTOBUF_FILES = """
exports_files(["protoc"])

filegroup(
    name = "well_known_protos",
    srcs = glob(["include/google/protobuf/*.proto"]),
)
"""

# What the built-in proto_library and cc_proto_library (Bazel 4 to 7) ask for.
_WELL_KNOWN = {
    "any": [],
    "api": ["source_context", "type"],
    "descriptor": [],
    "duration": [],
    "empty": [],
    "field_mask": [],
    "source_context": [],
    "struct": [],
    "timestamp": [],
    "type": ["any", "source_context"],
    "wrappers": [],
}

def _builtin_rules_need():
    rules = ["""
proto_library(
    name = "{0}_proto",
    srcs = ["include/google/protobuf/{0}.proto"],
    strip_import_prefix = "include",
    deps = {1},
)
""".format(name, repr([":%s_proto" % dep for dep in deps])) for name, deps in _WELL_KNOWN.items()]
    rules.append("""
proto_lang_toolchain(
    name = "cc_toolchain",
    blacklisted_protos = {0},
    command_line = "--cpp_out=$(OUT)",
    runtime = ":protobuf",
)
""".format(repr([":%s_proto" % name for name in _WELL_KNOWN])))
    return rules

def _protoc(ctx, found):
    if found.root:
        protoc = ctx.path(found.root + "/bin/protoc")
        if not protoc.exists:
            fail("PROTOBUF_ROOT=%s: no bin/protoc" % found.root)
        return protoc
    protoc = ctx.which("protoc")
    if not protoc:
        fail("@%s: no protoc in PATH. Install the Debian package protobuf-compiler." % ctx.name)
    return protoc

def _protobuf_impl(ctx):
    found = find(
        ctx,
        "PROTOBUF_ROOT",
        "protobuf",
        "protobuf",
        "google/protobuf/message.h",
        "libprotobuf-dev",
    )
    link_headers(ctx, found, ["google/protobuf"])
    ctx.symlink(_protoc(ctx, found), "protoc")
    full = link_flags(ctx, found, "protobuf", ["-lprotobuf", "-pthread"])
    lite = link_flags(ctx, found, "protobuf-lite", ["-lprotobuf-lite", "-pthread"])
    write_package(ctx, "", [
        headers_rule("protobuf_headers"),
        library_rule("protobuf", ":protobuf_headers", full),
        library_rule("protobuf_lite", ":protobuf_headers", lite),
        library_rule("protoc_lib", ":protobuf_headers", ["-lprotoc"] + full),
        _PROTOBUF_FILES,
    ] + (_builtin_rules_need() if ctx.attr.builtin_proto_rules else []))

_protobuf = _installed(
    _protobuf_impl,
    "PROTOBUF_ROOT",
    attrs = {"builtin_proto_rules": attr.bool(mandatory = True)},
)

# --- Abseil ----------------------------------------------------------------

# package -> its targets. Each is linked as its pkg-config module says; a target
# that the installed version lacks is left out.
_ABSL = {
    "algorithm": ["algorithm", "container"],
    "base": ["base", "config", "core_headers", "dynamic_annotations", "endian", "log_severity"],
    "cleanup": ["cleanup"],
    "container": [
        "btree",
        "fixed_array",
        "flat_hash_map",
        "flat_hash_set",
        "inlined_vector",
        "node_hash_map",
        "node_hash_set",
    ],
    "debugging": ["failure_signal_handler", "leak_check", "stacktrace", "symbolize"],
    "flags": ["commandlineflag", "flag", "parse", "reflection", "usage", "usage_config"],
    "functional": ["bind_front", "function_ref"],
    "hash": ["hash"],
    "memory": ["memory"],
    "meta": ["type_traits"],
    "numeric": ["bits", "int128"],
    "random": ["distributions", "random"],
    "status": ["status", "statusor"],
    "strings": ["cord", "str_format", "strings"],
    "synchronization": ["synchronization"],
    "time": ["time"],
    "types": ["any", "optional", "span", "variant"],
    "utility": ["utility"],
}

# Modules whose name isn't absl_TARGET.
_ABSL_MODULES = {
    "algorithm/container": "absl_algorithm_container",
    "flags/commandlineflag": "absl_flags_commandlineflag",
    "flags/flag": "absl_flags",
    "flags/parse": "absl_flags_parse",
    "flags/reflection": "absl_flags_reflection",
    "flags/usage": "absl_flags_usage",
    "flags/usage_config": "absl_flags_config",
    "random/distributions": "absl_random_distributions",
    "random/random": "absl_random_random",
}

def _absl_impl(ctx):
    found = find(ctx, "ABSL_ROOT", "absl_base", "absl_base", "absl/base/config.h", "libabsl-dev")
    link_headers(ctx, found, ["absl"])
    write_package(ctx, "", [headers_rule("headers")])
    for package, targets in _ABSL.items():
        rules = []
        for target in targets:
            module = _ABSL_MODULES.get(package + "/" + target, "absl_" + target)
            flags = link_flags(ctx, found, module)
            if flags != None:
                rules.append(library_rule(target, "//:headers", flags))
        write_package(ctx, "absl/" + package, rules)

_absl = _installed(_absl_impl, "ABSL_ROOT")

# --- OpenSSL, ISA-L, c-ares, libcurl ----------------------------------------------------------

def _openssl_impl(ctx):
    found = find(ctx, "OPENSSL_ROOT", "crypto", "libcrypto", "openssl/ssl.h", "libssl-dev")

    # Debian's <openssl/configuration.h> stays where it is: the compiler's own folder.
    link_headers(ctx, found, ["openssl"])
    write_package(ctx, "", [
        headers_rule("crypto", link_flags(ctx, found, "libcrypto", ["-lcrypto"])),
        library_rule("ssl", ":crypto", link_flags(ctx, found, "libssl", ["-lssl"])),
    ])

_openssl = _installed(_openssl_impl, "OPENSSL_ROOT")

def _isal_impl(ctx):
    found = find(ctx, "ISAL_ROOT", "isal", "libisal", "isa-l/crc.h", "libisal-dev")
    link_headers(ctx, found, ["isa-l"])
    write_package(ctx, "", [
        headers_rule("isal", link_flags(ctx, found, "libisal", ["-lisal"])),
    ])

_isal = _installed(_isal_impl, "ISAL_ROOT")

def _c_ares_impl(ctx):
    found = find(ctx, "CARES_ROOT", "cares", "libcares", "ares.h", "libc-ares-dev")
    names = [entry.basename for entry in ctx.path(found.include).readdir()]
    link_headers(ctx, found, [
        name
        for name in names
        if name.startswith("ares") and name.endswith(".h")
    ])
    write_package(ctx, "", [
        headers_rule("ares", link_flags(ctx, found, "libcares", ["-lcares"])),
    ])

_c_ares = _installed(_c_ares_impl, "CARES_ROOT")

def _curl_impl(ctx):
    found = find(ctx, "CURL_ROOT", "curl", "libcurl", "curl/curl.h", "libcurl4-openssl-dev")
    link_headers(ctx, found, ["curl"])

    # Weft loads the library (rpc/naming/curl_library.h), and is only told where to look for it.
    flags = link_flags(ctx, found, "libcurl", ["-lcurl"])
    where = [flag for flag in flags if flag.startswith("-Wl,-rpath")]
    write_package(ctx, "", [headers_rule("headers", where)])

_curl = _installed(_curl_impl, "CURL_ROOT")

# --- GoogleTest, Google Benchmark -------------------------------------------

def _googletest_impl(ctx):
    found = find(ctx, "GTEST_ROOT", "gtest", "gtest", "gtest/gtest.h", "libgtest-dev")
    link_headers(ctx, found, ["gtest", "gmock"])
    flags = link_flags(ctx, found, "gmock", ["-lgmock", "-lgtest"]) + ["-pthread"]
    write_package(ctx, "", [
        # GoogleTest with GoogleMock, without main().
        headers_rule("gtest", flags),
        library_rule("gtest_main", ":gtest", ["-lgmock_main"]),
    ])

_googletest = _installed(_googletest_impl, "GTEST_ROOT")

def _benchmark_impl(ctx):
    found = find(
        ctx,
        "BENCHMARK_ROOT",
        "benchmark",
        "benchmark",
        "benchmark/benchmark.h",
        "libbenchmark-dev",
    )
    link_headers(ctx, found, ["benchmark"])
    flags = link_flags(ctx, found, "benchmark", ["-lbenchmark"]) + ["-pthread"]
    write_package(ctx, "", [
        headers_rule("benchmark", flags),
        library_rule("benchmark_main", ":benchmark", ["-lbenchmark_main"]),
    ])

_benchmark = _installed(_benchmark_impl, "BENCHMARK_ROOT")

# --- gRPC: something to compare with, never needed ---------------------------

def _grpc_impl(ctx):
    # Not even looked for unless it is asked for: what is installed by chance must not change a build.
    plugin = ctx.which("grpc_cpp_plugin")
    header = ctx.path("/usr/include/grpcpp/grpcpp.h")
    installed = bool(ctx.os.environ.get("WEFT_PEERS", "") and plugin and header.exists)
    ctx.file("installed.bzl", "INSTALLED = %s\n" % installed)
    if not installed:
        write_package(ctx, "", [])
        return
    ctx.symlink(plugin, "grpc_cpp_plugin")
    link_headers(ctx, struct(include = "/usr/include"), ["grpc", "grpc++", "grpcpp"])
    write_package(ctx, "", [
        "exports_files([\"grpc_cpp_plugin\"])",
        headers_rule("grpc++", ["-lgrpc++", "-lgrpc", "-lgpr"]),
    ])

_grpc = _installed(_grpc_impl, "WEFT_PEERS")

# --- engines that Weft is embedded in: embed/ is built for those that are installed ------------------

def _write_embedded(ctx, header, entries, target, linkopts):
    installed = ctx.path("/usr/include/" + header).exists
    ctx.file("installed.bzl", "INSTALLED = %s\n" % installed)
    if installed:
        link_headers(ctx, struct(include = "/usr/include"), entries)
    write_package(ctx, "", [headers_rule(target, linkopts)] if installed else [])

def _raft_impl(ctx):
    _write_embedded(ctx, "raft.h", ["raft.h", "raft"], "raft", ["-lraft"])

def _asio_impl(ctx):
    _write_embedded(ctx, "asio.hpp", ["asio.hpp", "asio"], "asio", ["-lpthread"])

def _uv_impl(ctx):
    _write_embedded(ctx, "uv.h", ["uv.h", "uv"], "uv", ["-luv"])

def _nbdkit_impl(ctx):
    _write_embedded(ctx, "nbdkit-plugin.h", [
        "nbdkit-common.h",
        "nbdkit-plugin.h",
        "nbdkit-version.h",
    ], "nbdkit", [])

_nbdkit = _installed(_nbdkit_impl, "NBDKIT_ROOT")

def _rocksdb_impl(ctx):
    _write_embedded(ctx, "rocksdb/db.h", ["rocksdb"], "rocksdb", ["-lrocksdb"])

_asio = _installed(_asio_impl, "ASIO_ROOT")
_raft = _installed(_raft_impl, "RAFT_ROOT")
_rocksdb = _installed(_rocksdb_impl, "ROCKSDB_ROOT")
_uv = _installed(_uv_impl, "UV_ROOT")

def installed_repositories():
    """Makes those that the workspace hasn't defined itself."""
    for name, repository in {
        "asio": _asio,
        "c_ares": _c_ares,
        "com_google_absl": _absl,
        "com_google_benchmark": _benchmark,
        "com_google_googletest": _googletest,
        "curl": _curl,
        "grpc": _grpc,
        "isal": _isal,
        "libfabric": _libfabric,
        "nbdkit": _nbdkit,
        "openssl": _openssl,
        "raft": _raft,
        "rocksdb": _rocksdb,
        "uv": _uv,
    }.items():
        if not native.existing_rule(name):
            repository(name = name)
    if not native.existing_rule("com_google_protobuf"):
        # Debian's Bazel 4 reports no version; from 8 on the rules are not built in.
        version = native.bazel_version
        _protobuf(
            name = "com_google_protobuf",
            builtin_proto_rules = not version or int(version.split(".")[0]) < 8,
        )
