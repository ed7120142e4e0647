"""What code on the way of every call is compiled with, beyond --config=opt.

Each of its functions is short: what is worth little in the middle of a loop shows there.
"""

# Registers are scarce, and saving the frame pointer is a fifth of a small function's overhead.
# GCC guesses the one implementation that a file happens to see (a test's clock) for a virtual
# call, and joins neighbouring 4-byte fields in vector registers, which takes more than two moves.
HOT_COPTS = select({
    "//core:is_opt": [
        "-fomit-frame-pointer",
        "-fno-devirtualize-speculatively",
        "-fno-tree-slp-vectorize",
    ],
    "//conditions:default": [],
})
