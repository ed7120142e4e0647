"""weft_install: a program that copies what was built into a prefix.

    weft_install(name = "install", ...)          # bazel run //:install -- PREFIX

Nothing in the prefix knows where it is: it may be moved. DESTDIR, as usual, is
put before the prefix.
"""

_SCRIPT = """\
#!/usr/bin/env bash
# Copies {count} files into a prefix. usage: {name} PREFIX
set -euo pipefail
if (($# != 1)) || [[ $1 == -* || -z $1 ]]; then
  echo "usage: {name} PREFIX" >&2
  exit 2
fi
prefix=$1
[[ $prefix == /* ]] || prefix=${{BUILD_WORKING_DIRECTORY:-$PWD}}/$prefix
prefix=${{DESTDIR:-}}$prefix
mkdir -p -- "$prefix" && [[ -w $prefix ]] || {{
  echo "cannot write to $prefix: choose another prefix, or install as its owner" >&2
  exit 1
}}
if [[ -z ${{RUNFILES_DIR:-}} || ! -d $RUNFILES_DIR/{workspace} ]]; then
  RUNFILES_DIR=$(readlink -f "$0").runfiles
fi
cd "$RUNFILES_DIR/{workspace}"

# install replaces a file rather than writing into it: what runs from the prefix goes on.
put() {{ install -D -m "$1" -T -- "$2" "$prefix/$3"; }}
link() {{ ln -sfn -- "$1" "$prefix/$2"; }}

{lines}
echo "installed {count} files into $prefix"
"""

def _placed(mode, targets):
    """[(mode, file, path in the prefix)]; a path that ends in / keeps the file's name."""
    return [
        (mode, file, to + file.basename if to.endswith("/") else to)
        for target, to in targets.items()
        for file in target[DefaultInfo].files.to_list()
    ]

def _in_repository(file):
    path = file.short_path
    return path.split("/", 2)[2] if path.startswith("../") else path

def _public_headers(ctx):
    """Of all headers that the targets use: ours that lie in a public folder."""
    headers = {}
    for target in ctx.attr.targets:
        for header in target[CcInfo].compilation_context.headers.to_list():
            if header.owner.workspace_name != ctx.label.workspace_name:
                continue
            path = _in_repository(header)
            if path.rpartition("/")[0] in ctx.attr.header_folders and not path.endswith(".pb.h"):
                headers[path] = header
    return headers

def _weft_install_impl(ctx):
    headers = _public_headers(ctx)
    placed = [("644", headers[path], ctx.attr.include_dir + path) for path in sorted(headers)]
    placed += _placed("644", ctx.attr.files) + _placed("755", ctx.attr.programs)
    files = [file for _, file, _ in placed]
    lines = ["put %s '%s' '%s'" % (mode, file.short_path, to) for mode, file, to in placed]
    lines += ["link '%s' '%s'" % (to, link) for link, to in ctx.attr.links.items()]
    script = ctx.actions.declare_file(ctx.label.name + ".sh")
    ctx.actions.write(
        script,
        _SCRIPT.format(
            count = len(files),
            lines = "\n".join(lines),
            name = ctx.label.name,
            workspace = ctx.workspace_name,
        ),
        is_executable = True,
    )
    return [DefaultInfo(executable = script, runfiles = ctx.runfiles(files = files))]

weft_install = rule(
    implementation = _weft_install_impl,
    attrs = {
        "files": attr.label_keyed_string_dict(allow_files = True, doc = "target -> path"),
        "header_folders": attr.string_list(doc = "folders whose headers are public"),
        "include_dir": attr.string(doc = "where headers go, with a / at its end"),
        "links": attr.string_dict(doc = "path -> what it points to"),
        "programs": attr.label_keyed_string_dict(allow_files = True, doc = "target -> path"),
        "targets": attr.label_list(providers = [CcInfo], doc = "whose headers are installed"),
    },
    executable = True,
)
