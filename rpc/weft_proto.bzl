"""weft_proto_library: .proto files -> one C++ library of messages, stubs and services.

    weft_proto_library(
        name = "kv_proto",
        srcs = ["kv.proto"],             # its imports start at the workspace: "storage/page.proto"
        deps = ["//storage:page_proto"], # the weft_proto_library targets of imported files
    )

    cc_library(deps = [":kv_proto"])     # #include "examples/kv/kv.weft.h", "examples/kv/kv.pb.h"

protobuf's own files (google/protobuf/timestamp.proto, ...) need no dep; Weft's own are
//weft:memory_proto and //weft:options_proto.

weft_message_library: the same without stubs, services and layouts, for .proto files that the
library itself stands on; its outputs are protoc's alone.

weft_compiled_protos: .proto files whose C++ is in a library already; to be imported.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

WeftProtoInfo = provider(
    doc = "The .proto files of a weft_proto_library.",
    fields = {
        "sources": "depset of .proto files, its own and those of its deps",
        "roots": "depset of folders (strings) at which their import paths start",
    },
)

_SUFFIX = ".proto"
_ANY_PROTO = "/google/protobuf/any.proto"

def _import_root(file):
    """The folder at which a file's import path starts: the workspace, or its output tree."""
    parts = [part for part in [file.root.path, file.owner.workspace_root] if part]
    return "/".join(parts) or "."

def _well_known_root(files):
    for file in files:
        if file.path.endswith(_ANY_PROTO):
            return file.path[:-len(_ANY_PROTO)]
    fail("@com_google_protobuf//:well_known_protos has no google/protobuf/any.proto")

def _declare_outputs(ctx, kinds):
    """Headers and sources that protoc will write: NAME.KIND.h, NAME.KIND.cc."""
    headers = []
    sources = []
    for file in ctx.files.srcs:
        if file.owner.package != ctx.label.package:
            fail("%s belongs to //%s: a weft_proto_library takes files of its own package" %
                 (file.short_path, file.owner.package))
        stem = file.owner.name[:-len(_SUFFIX)]
        for kind in kinds:
            headers.append(ctx.actions.declare_file("%s.%s.h" % (stem, kind)))
            sources.append(ctx.actions.declare_file("%s.%s.cc" % (stem, kind)))
    return headers, sources

def _run_protoc(ctx, sources, roots, outputs, plugin):
    out = ctx.bin_dir.path
    if ctx.label.workspace_root:
        out += "/" + ctx.label.workspace_root
    arguments = ctx.actions.args()
    arguments.add_all(roots, before_each = "-I")
    arguments.add("-I", _well_known_root(ctx.files._well_known))
    arguments.add("--cpp_out=" + out)
    if plugin:
        arguments.add(plugin, format = "--plugin=protoc-gen-weft=%s")
        arguments.add("--weft_out=" + out)
    arguments.add_all(ctx.files.srcs)
    ctx.actions.run(
        executable = ctx.file._protoc,
        tools = [plugin] if plugin else [],
        arguments = [arguments],
        inputs = depset(ctx.files._well_known, transitive = [sources]),
        outputs = outputs,
        mnemonic = "WeftProtoc",
        progress_message = "Generating C++ from the .proto files of %s" % ctx.label,
    )

def _compile(ctx, headers, sources):
    """The C++ library: (CcInfo, files to build)."""
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    deps = [dep[CcInfo] for dep in ctx.attr.deps + ctx.attr._runtime]
    compiled, objects = cc_common.compile(
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = toolchain,
        feature_configuration = features,
        srcs = sources,
        public_hdrs = headers,
        compilation_contexts = [dep.compilation_context for dep in deps],
        # protoc's own code is not held to this project's warnings.
        user_compile_flags = ["-w"],
    )
    linking, outputs = cc_common.create_linking_context_from_compilation_outputs(
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = toolchain,
        feature_configuration = features,
        compilation_outputs = objects,
        linking_contexts = [dep.linking_context for dep in deps],
    )
    library = outputs.library_to_link
    files = [
        file
        for file in [library.static_library, library.pic_static_library, library.dynamic_library]
        if file
    ] if library else []
    return CcInfo(compilation_context = compiled, linking_context = linking), files

def _library(ctx, kinds, plugin):
    infos = [dep[WeftProtoInfo] for dep in ctx.attr.deps]
    sources = depset(ctx.files.srcs, transitive = [info.sources for info in infos])
    roots = depset(
        [_import_root(file) for file in ctx.files.srcs],
        transitive = [info.roots for info in infos],
    )
    headers, cc_sources = _declare_outputs(ctx, kinds)
    _run_protoc(ctx, sources, roots, headers + cc_sources, plugin)
    cc_info, files = _compile(ctx, headers, cc_sources)
    return [
        DefaultInfo(files = depset(files)),
        OutputGroupInfo(generated = depset(headers + cc_sources)),
        cc_info,
        WeftProtoInfo(sources = sources, roots = roots),
    ]

def _weft_proto_library_impl(ctx):
    return _library(ctx, ["pb", "weft"], ctx.executable._plugin)

def _weft_message_library_impl(ctx):
    return _library(ctx, ["pb"], None)

def _attributes(runtime, more = {}):
    attributes = {
        "srcs": attr.label_list(allow_files = [_SUFFIX], mandatory = True),
        "deps": attr.label_list(providers = [WeftProtoInfo, CcInfo]),
        "_protoc": attr.label(
            default = "@com_google_protobuf//:protoc",
            allow_single_file = True,
            executable = True,
            cfg = "exec",
        ),
        "_well_known": attr.label(default = "@com_google_protobuf//:well_known_protos"),
        "_runtime": attr.label_list(default = runtime),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    }
    attributes.update(more)
    return attributes

weft_proto_library = rule(
    implementation = _weft_proto_library_impl,
    attrs = _attributes(
        ["@com_google_protobuf//:protobuf", "//rpc:runtime"],
        {
            "_plugin": attr.label(
                default = "//rpc/plugin:protoc-gen-weft",
                allow_single_file = True,  # a program that is installed is a file
                executable = True,
                cfg = "exec",
            ),
        },
    ),
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

weft_message_library = rule(
    implementation = _weft_message_library_impl,
    attrs = _attributes(["@com_google_protobuf//:protobuf"]),
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def _weft_compiled_protos_impl(ctx):
    return [
        ctx.attr.library[CcInfo],
        WeftProtoInfo(
            sources = depset(ctx.files.srcs),
            roots = depset([_import_root(file) for file in ctx.files.srcs]),
        ),
    ]

weft_compiled_protos = rule(
    implementation = _weft_compiled_protos_impl,
    attrs = {
        "library": attr.label(providers = [CcInfo], mandatory = True),
        "srcs": attr.label_list(allow_files = [_SUFFIX], mandatory = True),
    },
)
