"""Declares a fuzz target: something that takes what a peer has sent, and a corpus for it."""

def fuzz_target(name, deps, dictionary = None, mutations = 2000, size = "small"):
    """NAME.cc defines LLVMFuzzerTestOneInput(); NAME_corpus/ has its inputs.

    Makes
      NAME               the target, a library;
      NAME_corpus_test   runs the corpus, and `mutations` changed inputs, in every build;
      NAME_fuzzer        libFuzzer's program, for --config=fuzz only: `./dev fuzz`;
      NAME_some_test     runs that for 20 s, in the same configuration: `./dev sanitizers`.

    Args:
      name: ends in _fuzz.
      deps: of NAME.cc.
      dictionary: a file of words, in libFuzzer's format, for inputs that are text or protobuf.
      mutations: as many as make about a second.
      size: of NAME_corpus_test.
    """
    corpus = native.glob([name + "_corpus/*"])
    native.cc_library(
        name = name,
        testonly = True,
        srcs = [name + ".cc"],
        deps = deps,
        alwayslink = True,
    )
    native.filegroup(
        name = name + "_corpus",
        srcs = corpus,
    )
    native.cc_test(
        name = name + "_corpus_test",
        size = size,
        args = [
            "--mutations=%d" % mutations,
            "$(locations :%s_corpus)" % name,
        ],
        data = [":" + name + "_corpus"],
        tags = ["fuzz-corpus"],
        deps = [
            ":" + name,
            "//tools/fuzz:replay",
        ],
    )
    native.cc_binary(
        name = name + "_fuzzer",
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["fuzzer", "manual"],
        deps = [":" + name],
    )
    dictionaries = [dictionary] if dictionary else []
    native.sh_test(
        name = name + "_some_test",
        size = "small",
        srcs = ["//tools/fuzz:some.sh"],
        args = [
            "$(location :%s_fuzzer)" % name,
        ] + ["-dict=$(location %s)" % words for words in dictionaries] + [
            "--",
            "$(locations :%s_corpus)" % name,
        ],
        data = [
            ":" + name + "_corpus",
            ":" + name + "_fuzzer",
        ] + dictionaries,
        tags = ["fuzz-some", "manual"],
    )
