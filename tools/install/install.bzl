"""What is installed, and the program that does it.

    weft_public_headers(name = "headers", entries = ["//weft:public_headers"], deps = [...])

is a folder of the entries and of the headers that they include, all below
weft/: what a program sees, and no more (collect_headers.py).

    weft_documents(name = "documents", files = {"//docs": "docs/"}, headers = [...])

is a folder of files at the places that they have in the source tree, whose
links lead to what is installed (collect_documents.py).

    weft_install(name = "install", ...)          # bazel run //:install -- PREFIX

copies files and folders into a prefix. Nothing in the prefix knows where it is:
it may be moved. DESTDIR, as usual, is put before the prefix.
"""

_SCRIPT = """\
#!/usr/bin/env bash
# Copies what was built into a prefix. usage: {name} PREFIX
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
put_folder() {{
  local path
  while read -r path; do put "$1" "$2/$path" "$3/$path"; done < <(cd "$2" && find -L . -type f)
}}
link() {{ mkdir -p -- "$(dirname "$prefix/$2")" && ln -sfn -- "$1" "$prefix/$2"; }}

{lines}
echo "installed into $prefix"
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

def _weft_public_headers_impl(ctx):
    headers = {
        _in_repository(header): header
        for dep in ctx.attr.deps
        for header in dep[CcInfo].compilation_context.headers.to_list()
        if header.owner.workspace_name == ctx.label.workspace_name
    }
    entries = [_in_repository(file) for file in ctx.files.entries] + ctx.attr.generated
    headers.update({_in_repository(file): file for file in ctx.files.entries})
    folder = ctx.actions.declare_directory(ctx.label.name)
    arguments = ctx.actions.args()
    arguments.add(folder.path)
    arguments.add_all(entries)
    arguments.add("--")
    arguments.add_all(["%s=%s" % (path, header.path) for path, header in headers.items()])
    ctx.actions.run(
        executable = ctx.file._collect,
        arguments = [arguments],
        inputs = headers.values(),
        outputs = [folder],
        mnemonic = "WeftHeaders",
        progress_message = "Collecting the public headers",
    )
    return [DefaultInfo(files = depset([folder]), runfiles = ctx.runfiles(files = [folder]))]

weft_public_headers = rule(
    implementation = _weft_public_headers_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo], mandatory = True),
        "entries": attr.label_list(allow_files = [".h"], mandatory = True),
        "generated": attr.string_list(doc = "more entries, as programs include them"),
        "_collect": attr.label(
            default = "//tools/install:collect_headers.py",
            allow_single_file = True,
        ),
    },
)

def _weft_documents_impl(ctx):
    placed = _placed("", ctx.attr.files)
    folder = ctx.actions.declare_directory(ctx.label.name)
    arguments = ctx.actions.args()
    arguments.add(folder.path)
    arguments.add_all([_in_repository(header) for header in ctx.files.headers])
    arguments.add("--")
    arguments.add_all(["%s=%s" % (to, file.path) for _, file, to in placed])
    ctx.actions.run(
        executable = ctx.file._collect,
        arguments = [arguments],
        inputs = [file for _, file, _ in placed],
        outputs = [folder],
        mnemonic = "WeftDocuments",
        progress_message = "Collecting the documents",
    )
    return [DefaultInfo(files = depset([folder]), runfiles = ctx.runfiles(files = [folder]))]

weft_documents = rule(
    implementation = _weft_documents_impl,
    attrs = {
        "files": attr.label_keyed_string_dict(allow_files = True, doc = "target -> path"),
        "headers": attr.label_list(allow_files = [".h"], doc = "installed in include/"),
        "_collect": attr.label(
            default = "//tools/install:collect_documents.py",
            allow_single_file = True,
        ),
    },
)

def _weft_install_impl(ctx):
    placed = _placed("644", ctx.attr.files) + _placed("755", ctx.attr.programs)
    lines = [
        "%s %s '%s' '%s'" % ("put_folder" if file.is_directory else "put", mode, file.short_path, to)
        for mode, file, to in placed
    ]
    lines += ["link '%s' '%s'" % (to, link) for link, to in ctx.attr.links.items()]
    script = ctx.actions.declare_file(ctx.label.name + ".sh")
    ctx.actions.write(
        script,
        _SCRIPT.format(
            lines = "\n".join(lines),
            name = ctx.label.name,
            workspace = ctx.workspace_name,
        ),
        is_executable = True,
    )
    files = [file for _, file, _ in placed]
    return [DefaultInfo(executable = script, runfiles = ctx.runfiles(files = files))]

weft_install = rule(
    implementation = _weft_install_impl,
    attrs = {
        "files": attr.label_keyed_string_dict(allow_files = True, doc = "target -> path"),
        "links": attr.string_dict(doc = "path -> what it points to"),
        "programs": attr.label_keyed_string_dict(allow_files = True, doc = "target -> path"),
    },
    executable = True,
)
