"""Trees of HTML and SVG, written out with everything escaped that comes from outside.

    page = node("p", {"class": "note"}, "5 < 6", node("br"))
    to_text(page)            '<p class="note">5 &lt; 6<br></p>'

What is inside of <svg> is also XML.
"""
import xml.etree.ElementTree as xml
from xml.sax import saxutils

# Written without an end, as HTML wants it.
_VOID = {"br", "hr", "img", "link", "meta"}


def node(tag, attributes=None, *children):
    """Children: nodes, or texts. An attribute that is None is left out."""
    made = xml.Element(tag, {name: str(value) for name, value in (attributes or {}).items()
                             if value is not None})
    for child in children:
        add(made, child)
    return made


def add(parent, child):
    if isinstance(child, xml.Element):
        parent.append(child)
    elif len(parent):
        parent[-1].tail = (parent[-1].tail or "") + str(child)
    else:
        parent.text = (parent.text or "") + str(child)
    return child


# Control characters may stand in no XML, escaped or not.
_CLEAN = {code: "\ufffd" for code in list(range(0x20)) + [0x7f, 0xfffe, 0xffff]}
for kept in (0x09, 0x0a, 0x0d):
    del _CLEAN[kept]


def _escape(text):
    return saxutils.escape(text.translate(_CLEAN), {'"': "&quot;"})


def to_text(root):
    attributes = "".join(' %s="%s"' % (name, _escape(value)) for name, value in root.items())
    start = "<%s%s>" % (root.tag, attributes)
    if root.tag in _VOID:
        return start
    # Ours alone, and its text is not escaped in HTML.
    inner = root.text or "" if root.tag == "style" else _escape(root.text or "")
    for child in root:
        inner += to_text(child) + _escape(child.tail or "")
    return "%s%s</%s>" % (start, inner, root.tag)
