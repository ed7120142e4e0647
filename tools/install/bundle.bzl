"""weft_bundle: many libraries as one archive.

    weft_bundle(name = "weft", deps = [...])     # libweft.a

merges the objects of deps, and of what they use in this repository, into one
archive. As a dep, it is linked whole. Libraries of other repositories stay
outside: their link flags are passed on, to Bazel and to weft_template. With
package = "c", only that package's objects are in it: the rest is in a library
that is linked beside it.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

WeftBundleInfo = provider(
    doc = "What linking the bundle takes besides itself.",
    fields = {"link_flags": "list of flags, each once"},
)

def _archives_and_outside(ctx):
    archives = {}
    outside = []
    for dep in ctx.attr.deps:
        for linker_input in dep[CcInfo].linking_context.linker_inputs.to_list():
            if linker_input.owner.workspace_name != ctx.label.workspace_name:
                outside.append(linker_input)
                continue
            if ctx.attr.package and linker_input.owner.package != ctx.attr.package:
                continue
            for library in linker_input.libraries:
                # Position independent, for the shared library; exists in every mode.
                archive = library.pic_static_library or library.static_library
                if archive:
                    archives[archive] = True
    return archives.keys(), outside

def _merge(ctx, toolchain, archives):
    merged = ctx.actions.declare_file("lib%s.a" % ctx.attr.name)
    script = ctx.actions.declare_file(ctx.attr.name + ".mri")
    ctx.actions.write(script, "".join(
        ["CREATE %s\n" % merged.path] +
        ["ADDLIB %s\n" % archive.path for archive in archives] +
        ["SAVE\nEND\n"],
    ))
    ctx.actions.run_shell(
        command = "'%s' -M < '%s'" % (toolchain.ar_executable, script.path),
        inputs = depset(archives + [script], transitive = [toolchain.all_files]),
        outputs = [merged],
        mnemonic = "WeftMerge",
        progress_message = "Merging %d libraries into %s" % (len(archives), merged.short_path),
    )
    return merged

def _weft_bundle_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    archives, outside = _archives_and_outside(ctx)
    merged = _merge(ctx, toolchain, archives)
    whole = cc_common.create_linker_input(
        owner = ctx.label,
        libraries = depset([cc_common.create_library_to_link(
            actions = ctx.actions,
            feature_configuration = features,
            cc_toolchain = toolchain,
            pic_static_library = merged,
            alwayslink = True,
        )]),
    )
    link_flags = {
        flag: True
        for linker_input in outside
        for flag in linker_input.user_link_flags
    }
    return [
        DefaultInfo(files = depset([merged]), runfiles = ctx.runfiles(files = [merged])),
        CcInfo(linking_context = cc_common.create_linking_context(
            linker_inputs = depset([whole] + outside, order = "topological"),
        )),
        WeftBundleInfo(link_flags = link_flags.keys()),
    ]

weft_bundle = rule(
    implementation = _weft_bundle_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo], mandatory = True),
        "package": attr.string(doc = "whose objects; empty: those of all in this repository"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def _weft_template_impl(ctx):
    flags = ctx.attr.bundle[WeftBundleInfo].link_flags
    ctx.actions.expand_template(
        template = ctx.file.template,
        output = ctx.outputs.out,
        substitutions = {
            "@VERSION@": ctx.attr.version,
            "@SO_VERSION@": ctx.attr.so_version,
            "@LINK_FLAGS@": " ".join(flags),
            "@LINK_FLAGS_CMAKE@": ";".join(flags),
        },
    )

weft_template = rule(
    doc = "A file with @VERSION@, @SO_VERSION@, @LINK_FLAGS@ and @LINK_FLAGS_CMAKE@ filled in.",
    implementation = _weft_template_impl,
    attrs = {
        "bundle": attr.label(providers = [WeftBundleInfo], mandatory = True),
        "out": attr.output(mandatory = True),
        "so_version": attr.string(mandatory = True),
        "template": attr.label(allow_single_file = True, mandatory = True),
        "version": attr.string(mandatory = True),
    },
)
