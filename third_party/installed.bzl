"""Finds an installed C++ library and writes the BUILD text that names it.

A library is looked for in the prefix that its *_ROOT variable names, else
where pkg-config says, else in the compiler's own folders. A prefix is taken
whole: headers, libraries, tools and the run path of what links against it.
"""

def find(ctx, root_variable, library, module, header, package):
    """Where the library is, or a failed build that says what to install.

    Args:
      ctx: the repository_ctx.
      root_variable: environment variable that may name a prefix.
      library: file name after "lib", to tell a prefix's library folders apart.
      module: its pkg-config name.
      header: a header that proves it is there.
      package: Debian package, for the error message.

    Returns:
      struct(root, include, lib_dir): root is "" and lib_dir None for a library
      of the system.
    """
    root = ctx.os.environ.get(root_variable, "")
    if root:
        include = root + "/include"
        lib_dir = _library_folder(ctx, root_variable, root, library)
    else:
        words = _pkg_config(ctx, ["--variable=includedir", module], {})
        include = words[0] if words else "/usr/include"
        lib_dir = None
    if not ctx.path(include + "/" + header).exists:
        fail("@%s: no %s/%s. Install the Debian package %s, or set %s to the library's prefix." %
             (ctx.name, include, header, package, root_variable))
    return struct(root = root, include = include, lib_dir = lib_dir)

def _library_folder(ctx, root_variable, root, library):
    machine = ctx.execute(["uname", "-m"]).stdout.strip()
    for name in ["lib/%s-linux-gnu" % machine, "lib64", "lib"]:
        folder = ctx.path(root + "/" + name)
        if folder.exists:
            for entry in folder.readdir():
                if entry.basename.startswith("lib" + library):
                    return str(folder)
    fail("%s=%s: no lib%s* in its library folders" % (root_variable, root, library))

def _pkg_config(ctx, arguments, environment):
    """pkg-config's answer as words; None where it has none."""
    tool = ctx.which("pkg-config")
    if not tool:
        return None
    result = ctx.execute([tool] + arguments, environment = environment)
    if result.return_code != 0:
        return None
    return [word for word in result.stdout.replace("\n", " ").split(" ") if word]

def link_flags(ctx, found, module, otherwise = None):
    """How to link the pkg-config module; `otherwise` where pkg-config can't say."""
    environment = {}
    if found.root:
        environment["PKG_CONFIG_LIBDIR"] = "%s/pkgconfig:%s/share/pkgconfig" % (found.lib_dir, found.root)
    flags = _pkg_config(ctx, ["--libs", module], environment)
    if flags == None:
        flags = otherwise
    if flags == None or not found.lib_dir:
        return flags
    return ["-L" + found.lib_dir, "-Wl,-rpath," + found.lib_dir] + [
        flag
        for flag in flags
        if not flag.startswith("-L")
    ]

def link_headers(ctx, found, entries):
    """Makes include/ENTRY for each: only the library's own folders become visible."""
    for entry in entries:
        ctx.symlink(found.include + "/" + entry, "include/" + entry)

def write_package(ctx, folder, rules):
    """A public package of the given rules (texts) in `folder`, "" for the top."""
    path = folder + "/BUILD" if folder else "BUILD"
    ctx.file(path, "\n".join(["package(default_visibility = [\"//visibility:public\"])"] + rules))
    if not folder:
        ctx.file("WORKSPACE", "workspace(name = \"%s\")\n" % ctx.name)

def headers_rule(name, linkopts = []):
    """Text of a cc_library with the repository's headers."""
    return """
cc_library(
    name = "{name}",
    hdrs = glob(["include/**/*." + ending for ending in ["h", "hpp", "inc", "ipp"]]),
    includes = ["include"],
    linkopts = {linkopts},
)
""".format(name = name, linkopts = repr(linkopts))

def library_rule(name, headers, linkopts):
    """Text of a cc_library that adds link flags to the target `headers`."""
    return """
cc_library(
    name = "{name}",
    linkopts = {linkopts},
    deps = ["{headers}"],
)
""".format(name = name, headers = headers, linkopts = repr(linkopts))
