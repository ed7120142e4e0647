"""A small language for what goes wrong, and when:

    0 cut cable; 2 mend cable
    0 kill server; 3 start server
    1.5 netem 1 loss 5%; 10 calm 1

Each step is SECONDS WHAT, the seconds since the script began; steps are in the order of time. What
there is: the methods of pair.Pair for machines and cables (`cut cable 1` is that of the second card;
without a number all are meant), and for processes `kill NAME` and `start NAME`.
"""
import collections
import time

Step = collections.namedtuple("Step", "at verb arguments")

# verb -> how many arguments; None: at least one; _CARD: none, or the number of a card.
_CARD = "card"
_VERBS = {
    "cut cable": _CARD,
    "mend cable": _CARD,
    "kill machine": 1,
    "start machine": 1,
    "freeze machine": 1,
    "thaw machine": 1,
    "netem": None,
    "calm": 1,
    "kill": 1,
    "start": 1,
}


def _parse_step(text):
    words = text.split()
    try:
        at = float(words[0])
    except (ValueError, IndexError):
        raise ValueError("'%s' does not start with seconds" % text.strip()) from None
    for length in (2, 1):
        verb, arguments = " ".join(words[1:1 + length]), words[1 + length:]
        if verb not in _VERBS:
            continue
        if _VERBS[verb] == _CARD and len(arguments) <= 1 and all(word.isdigit() for word in arguments):
            return Step(at, verb, arguments)
        if _VERBS[verb] in (None, len(arguments)):
            return Step(at, verb, arguments)
    raise ValueError("'%s' is no fault: %s" % (text.strip(), ", ".join(_VERBS)))


def parse(script):
    """The steps of a script. Raises ValueError with what is wrong."""
    steps = [_parse_step(text) for text in script.split(";") if text.strip()]
    if steps != sorted(steps, key=lambda step: step.at):
        raise ValueError("the steps are not in the order of time: " + script)
    return steps


class Stage:
    """The pair, and the processes that a script may kill and start by their names."""

    def __init__(self, pair, starters):
        self._pair = pair
        self._starters = starters  # name -> function that starts it and returns its Process
        self.processes = {}

    def start_process(self, name):
        self.processes[name] = self._starters[name]()

    def do(self, step):
        words = [int(word) if word.isdigit() else word for word in step.arguments]
        if step.verb == "kill":
            self.processes[words[0]].kill()
        elif step.verb == "start":
            self.start_process(words[0])
        elif step.verb == "netem":
            self._pair.disturb(words[0], *step.arguments[1:])
        else:
            getattr(self._pair, step.verb.replace(" ", "_"))(*words)


def play(steps, stage, say):
    """Does each step at its time, or as soon as the one before it is done."""
    start = time.monotonic()
    for step in steps:
        time.sleep(max(0.0, start + step.at - time.monotonic()))
        say(" ".join([step.verb, *step.arguments]))
        stage.do(step)
