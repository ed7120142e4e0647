"""Lets Bazel 4 build C++ without a download.

Debian's bazel-bootstrap is Bazel 4.2.3. It fetches @rules_cc, @rules_java and
@remote_coverage_tools even for a plain cc_test, although the rules themselves
are built into that Bazel. The first definition of a repository wins, so the
small ones made here stand in: they hand on the built-in rules by name.

Newer Bazels bring these repositories along; there this file does nothing.
"""

_CC_RULES = [
    "cc_binary",
    "cc_import",
    "cc_library",
    "cc_proto_library",
    "cc_test",
    "cc_toolchain",
    "cc_toolchain_suite",
    "objc_library",
]

_JAVA_RULES = [
    "java_binary",
    "java_import",
    "java_library",
    "java_runtime",
    "java_toolchain",
]

def _hand_on(rules):
    return "".join(["{0} = native.{0}\n".format(rule) for rule in rules])

# Named by every test's implicit dependencies, run by `bazel coverage` alone.
_COVERAGE_BUILD = """\
package(default_visibility = ["//visibility:public"])

[sh_binary(
    name = name,
    srcs = ["unavailable.sh"],
) for name in [
    "coverage_report_generator",
    "lcov_merger",
]]
"""

_COVERAGE_UNAVAILABLE = """\
#!/bin/sh
echo "bazel coverage: this Bazel has no coverage tools installed" >&2
exit 1
"""

_REPOSITORIES = {
    "rules_cc": {"BUILD": "", "cc/BUILD": "", "cc/defs.bzl": _hand_on(_CC_RULES)},
    "rules_java": {"BUILD": "", "java/BUILD": "", "java/defs.bzl": _hand_on(_JAVA_RULES)},
    "remote_coverage_tools": {"BUILD": _COVERAGE_BUILD, "unavailable.sh": _COVERAGE_UNAVAILABLE},
}

def _written_repository_impl(ctx):
    ctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % ctx.name)
    for path, content in ctx.attr.files.items():
        ctx.file(path, content, executable = path.endswith(".sh"))

_written_repository = repository_rule(
    implementation = _written_repository_impl,
    attrs = {"files": attr.string_dict(mandatory = True, doc = "path -> content")},
    local = True,
)

def bazel4_offline_repositories():
    # Debian's build reports no version at all.
    version = native.bazel_version
    if version and int(version.split(".")[0]) >= 5:
        return
    for name, files in _REPOSITORIES.items():
        if not native.existing_rule(name):
            _written_repository(name = name, files = files)
