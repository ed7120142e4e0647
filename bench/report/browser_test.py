#!/usr/bin/env python3
"""The page in a real browser, without a window: it draws its plots, in light and in dark, no label
covers another, and nothing is fetched.

Screenshots are kept among the test's outputs (bazel-testlogs/bench/report/browser_test). Where there
is no Chromium (third_party/packages.debian has it for Debian) the test is skipped.
"""
import html.parser
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

import fixture
import page
import png

sys.path.append("core/testing")
import told_skips  # pylint: disable=wrong-import-position

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
WHY_NOT = None if BROWSER else "no Chromium here: apt-get install chromium-headless-shell (Debian)"

WIDTH, HEIGHT = 900, 1100
# In page.css, of light pages and of dark ones.
LIGHT = {"weft": (0x1f, 0x5f, 0xd0), "raw": (0x7a, 0x82, 0x8c), "page": (0xfb, 0xfb, 0xfa)}
DARK = {"weft": (0x74, 0xa7, 0xff), "raw": (0xa2, 0xab, 0xb6), "page": (0x14, 0x17, 0x1b)}

# Hidden pictures are fetched as well.
PICTURE = '<img src="http://plots.example/x.png" hidden>'

# Finds labels that touch each other, or leave their chart. Only copies for this test have a script.
PROBE = """<script>
addEventListener('load', () => {
  const wrong = [];
  const svgs = document.querySelectorAll('svg.chart');
  for (const svg of svgs) {
    const frame = svg.getBoundingClientRect();
    const labels = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
    labels.forEach(([text, box], i) => {
      if (box.left < frame.left || box.right > frame.right || box.top < frame.top || box.bottom > frame.bottom)
        wrong.push('outside: ' + text);
      for (const [other, rival] of labels.slice(i + 1))
        if (box.left < rival.right && rival.left < box.right && box.top < rival.bottom && rival.top < box.bottom)
          wrong.push(text + ' covers ' + other);
    });
  }
  if (document.documentElement.scrollWidth > innerWidth) wrong.push('the page is wider than its window');
  document.body.innerHTML = '<p id="charts">' + svgs.length + '</p><p id="wrong"></p>';
  document.getElementById('wrong').textContent = wrong.join('; ');
});
</script>"""


class Proxy:
    """Counts whoever wants something from a network."""

    def __init__(self):
        self.asked = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = "http://127.0.0.1:%d" % self._socket.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            with peer:
                self.asked.append(peer.recv(1000).split(b"\r\n")[0].decode("latin-1"))

    def close(self):
        self._socket.close()


class Texts(html.parser.HTMLParser):
    """{id: text} of the elements that have one."""

    def __init__(self, text):
        super().__init__()
        self.found, self._id = {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._id = dict(attrs).get("id")
        if self._id:
            self.found[self._id] = ""

    def handle_data(self, data):
        if self._id:
            self.found[self._id] += data


@unittest.skipIf(WHY_NOT, WHY_NOT)
class InABrowser(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.html = page.to_html(fixture.make(kinds=("raw", "weft", "grpc", "ucx", "sockets")), "perf.json")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.proxy = Proxy()
        self.addCleanup(self.proxy.close)

    def browse(self, html, *options, width=WIDTH, height=HEIGHT):
        path = os.path.join(self.folder, "page.html")
        with open(path, "w", encoding="utf-8") as out:
            out.write(html)
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--disable-background-networking", "--disable-component-update", "--no-first-run",
                   "--hide-scrollbars", "--user-data-dir=" + os.path.join(self.folder, "profile"),
                   "--proxy-server=" + self.proxy.address, "--window-size=%d,%d" % (width, height),
                   *options, "file://" + path]
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100,
                               env=dict(os.environ, HOME=self.folder), check=False)
        self.assertEqual(ended.returncode, 0, ended.stderr.decode("utf-8", "replace"))
        return ended.stdout.decode("utf-8")

    def screenshot(self, html, name, *options):
        path = os.path.join(os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR", self.folder), name)
        self.browse(html, "--screenshot=" + path, *options)
        return png.read(path)

    def assert_drawn(self, picture, colours):
        self.assertEqual((picture.width, picture.height), (WIDTH, HEIGHT))
        pixels = picture.colours()
        for name, least in (("page", 100_000), ("weft", 500), ("raw", 250)):
            self.assertGreater(pixels.get(colours[name], 0), least, name)
        self.assertGreater(len(pixels), 200, "texts have soft edges, and lines are slanted")

    def test_plots_are_drawn_and_nothing_is_fetched(self):
        self.assert_drawn(self.screenshot(self.html, "light.png"), LIGHT)
        self.assertEqual(self.proxy.asked, [])

    def test_plots_are_drawn_for_those_who_want_it_dark_and_nothing_smuggled_in_is_fetched(self):
        smuggled = self.html.replace("</h1>", "</h1>" + PICTURE)
        self.assertNotEqual(smuggled, self.html)
        dark = self.screenshot(smuggled, "dark.png", "--blink-settings=preferredColorScheme=0")
        self.assert_drawn(dark, DARK)
        self.assertEqual(self.proxy.asked, [])

    def test_what_would_be_fetched_would_be_noticed(self):
        self.browse("<!DOCTYPE html><body>" + PICTURE, "--dump-dom")
        self.assertTrue(any("plots.example" in asked for asked in self.proxy.asked), self.proxy.asked)

    def test_no_label_covers_another_even_in_a_narrow_window(self):
        probe = self.html.replace('content="%s"' % page.POLICY, "").replace("</body>", PROBE + "</body>")
        found = Texts(self.browse(probe, "--dump-dom", width=500)).found
        self.assertEqual(found.get("charts"), "36", found)
        self.assertEqual(found.get("wrong", "none told").strip(), "")


if __name__ == "__main__":
    told_skips.main()
