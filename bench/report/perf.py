#!/usr/bin/env python3
"""What ./dev perf does around weft_perf.

    perf.py run PROGRAM [--report DIR] [OPTION...]   measures, then plots; options are PROGRAM's
    perf.py report FILE DIR                          a page from a document of an earlier run
    perf.py plot FILE                                the plots in the terminal
    perf.py compare A B [--confidence C] [--at-least PERCENT] [--relative] [--all]
                                                     what differs, and how surely

Status of compare: 0 nothing is slower, 1 something is, 2 they cannot be compared. Of the others: 0,
or what PROGRAM said, or 2.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

import charts
import compare
import document
import page
import text_chart

PAGE = "index.html"
COPY = "perf.json"


def _report(source, folder):
    """Writes the page and a copy of its document; returns the page's path."""
    html = page.to_html(document.read(source), COPY)
    os.makedirs(folder, exist_ok=True)
    copy = os.path.join(folder, COPY)
    if not (os.path.exists(copy) and os.path.samefile(source, copy)):
        shutil.copyfile(source, copy)
    path = os.path.join(folder, PAGE)
    with open(path, "w", encoding="utf-8") as out:
        out.write(html)
    return path


def _plot(read):
    """Of each row the first chart: more do not fit on a screen."""
    look = text_chart.look_for(sys.stdout.encoding, sys.stdout.isatty())
    for path in read.paths():
        for row in charts.rows(read, path):
            heading = "\n%s: %s, %s" % (path, row.title.lower(), row.charts[0].title)
            print("\n".join(text_chart.to_lines(row.charts[0], heading, look)))


def _for(encoding, text):
    """What an output in that encoding can take."""
    for fancy, plain in (("µ", "u"), ("×", "x")):
        try:
            fancy.encode(encoding or "ascii")
        except UnicodeEncodeError:
            text = text.replace(fancy, plain)
    return text


def _take(arguments, name):
    """(value of the option, the others); None if it is not there."""
    for i, argument in enumerate(arguments):
        if argument == name and i + 1 < len(arguments):
            return arguments[i + 1], arguments[:i] + arguments[i + 2:]
        if argument.startswith(name + "="):
            return argument[len(name) + 1:], arguments[:i] + arguments[i + 1:]
    return None, arguments


def main_run(arguments):
    program, options = arguments[0], arguments[1:]
    folder, options = _take(options, "--report")
    json_file, options = _take(options, "--json")
    if json_file:
        with open(json_file, "a", encoding="utf-8"):
            pass  # rather now than after ten minutes
    with tempfile.TemporaryDirectory() as temporary:
        file = os.path.join(temporary, COPY)
        status = subprocess.call([program, "--json", file, *options])
        if os.path.exists(file):
            if json_file:
                shutil.copyfile(file, json_file)
            _plot(document.read(file))
            if folder:
                print("\nThe page: " + _report(file, folder))
    return status


def main_report(arguments):
    parser = argparse.ArgumentParser(prog="./dev perf report")
    parser.add_argument("file")
    parser.add_argument("folder")
    options = parser.parse_args(arguments)
    print(_report(options.file, options.folder))
    return 0


def main_plot(arguments):
    parser = argparse.ArgumentParser(prog="./dev perf plot")
    parser.add_argument("file")
    _plot(document.read(parser.parse_args(arguments).file))
    return 0


def main_compare(arguments):
    parser = argparse.ArgumentParser(
        prog="./dev perf compare", epilog="Status: 0 nothing is slower in AFTER, 1 something is, 2 they "
        "cannot be compared.")
    parser.add_argument("before", help="a document of ./dev perf --json")
    parser.add_argument("after", help="another one")
    parser.add_argument("--confidence", type=float, default=compare.DEFAULTS.confidence,
                        help="of the intervals, as far as the rounds can give it; %(default)s")
    parser.add_argument("--at-least", type=float, default=compare.DEFAULTS.at_least * 100,
                        metavar="PERCENT", help="what is less is no difference; %(default)s")
    parser.add_argument("--relative", action="store_true",
                        help="compare what was measured in relation to raw libfabric")
    parser.add_argument("--all", action="store_true", help="also cells without a difference")
    options = parser.parse_args(arguments)
    if not 0 < options.confidence < 1 or options.at_least < 0:
        parser.error("--confidence is between 0 and 1, --at-least not negative")
    settings = compare.Settings(options.confidence, options.at_least / 100, options.relative)
    lines, status = compare.report(document.read(options.before), document.read(options.after), settings,
                                   options.all)
    print(_for(sys.stdout.encoding, "\n".join(lines)))
    return status


COMMANDS = {"run": main_run, "report": main_report, "plot": main_plot, "compare": main_compare}


def main(arguments):
    if not arguments or arguments[0] not in COMMANDS:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        return COMMANDS[arguments[0]](arguments[1:])
    except (document.BadDocument, OSError) as wrong:
        print("perf: %s" % wrong, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
