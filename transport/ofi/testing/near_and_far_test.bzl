"""Tests of links, for links of the near queue and for links of queue groups."""

def near_and_far_test(name, visibility = None, **kwargs):
    """A cc_test, and far_<name>: the same where all links over tcp complete to queue groups.

    Args:
      name: of the test.
      visibility: of the near one.
      **kwargs: of both.
    """
    native.cc_test(name = name, visibility = visibility, **kwargs)
    native.cc_test(
        name = "far_" + name,
        local_defines = ["WEFT_TEST_NEAR_LINKS=0"],
        **kwargs
    )
