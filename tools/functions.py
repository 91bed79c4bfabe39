"""Where the functions of a C++ source lie, found by matching brackets in clang-formatted text.

No compiler: comments, texts and preprocessor lines are blanked out, then declarations are read one after
another. A lambda is part of the function that holds it.
"""
import re
from dataclasses import dataclass

BLANKED = re.compile(
    r'R"([^(\s]*)\(.*?\)\1"'  # raw string
    r"|//[^\n]*"
    r"|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"  # a quote between digits is a separator
    r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
    re.DOTALL | re.MULTILINE,
)
CLOSING = {"(": ")", "{": "}", "[": "]", "<": ">"}
SCOPE = re.compile(r"^(?:inline\s+)?(?:namespace|extern|class|struct|union)\b")
# Names before "(" that are no function's.
NO_NAME = {"decltype", "noexcept", "alignas", "requires", "__attribute__", "static_assert", "if", "throw"}


@dataclass
class Function:
    name: str
    line: int  # of the signature
    lines: int  # to the closing brace
    parameters: int


def blanked(text):
    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])

    return BLANKED.sub(blank, text)


def closing(text, at):
    """Position of the bracket that closes the one at `at`."""
    opens, closes, depth = text[at], CLOSING[text[at]], 0
    for i in range(at, len(text)):
        if text[i] == opens:
            depth += 1
        elif text[i] == closes and not (closes == ">" and text[i - 1] in "-="):
            depth -= 1
            if depth == 0:
                return i
    raise ValueError(f"'{opens}' is not closed")


def split(text):
    """At the commas that are in no brackets."""
    parts, depth = [""], 0
    for i, c in enumerate(text):
        if c in "({[<":
            depth += 1
        elif c in ")}]" or (c == ">" and text[i - 1] not in "-="):
            depth -= 1
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p for p in parts if p.strip()]


def signature(header):
    """Name and parameters of the function that `header` declares, or None."""
    rest = header
    while match := re.match(r"\s*template\s*<", rest):
        rest = rest[closing(rest, match.end() - 1) + 1 :]
    at = 0
    while (at := rest.find("(", at)) >= 0:
        end = closing(rest, at)
        before = re.search(r"(operator\s*(?:\(\)|\[\]|[^\w\s(]+|\s[\w:<>]+)?|~?\w+)\s*$", rest[:at])
        if "=" in rest[:at].replace("==", "") and "operator" not in rest[:at]:
            return None
        if before and before[1].startswith("operator") and before[1].strip() == "operator":
            at = end + 1  # operator()
            continue
        if before and before[1] not in NO_NAME:
            return before[1], split(rest[at + 1 : end])
        at = end + 1
    return None


def functions(source):
    """All function definitions of a source."""
    text = blanked(source)
    found = []
    read_scope(text, 0, len(text), found)
    return found


def read_scope(text, at, end, found):
    start = at  # of the declaration at hand
    while at < end:
        c = text[at]
        if c == "(":
            at = closing(text, at)
        elif c == ";" or (c == ":" and re.search(r"\b(?:public|private|protected)\s*$", text[start:at])):
            start = at + 1
        elif c == "{":
            header = text[start:at]
            close = closing(text, at)
            bare = re.sub(r"^\s*(?:template\s*<.*?>\s*(?=\b(?:class|struct|union)\b))?", "", header, flags=re.DOTALL)
            if SCOPE.match(bare) and "(" not in bare:
                read_scope(text, at + 1, close, found)
                start = close + 1
            elif is_body(header) and (named := signature(header)):
                first = start + len(header) - len(header.lstrip())
                line = text.count("\n", 0, first) + 1
                found.append(Function(named[0], line, text.count("\n", first, close) + 1, len(named[1])))
                start = close + 1
            # else the value of a variable or of a member in a constructor's list: the declaration goes on
            at = close
        at += 1


def is_body(header):
    """Whether the brace after `header` opens a function's body."""
    stripped = header.rstrip()
    return bool(re.search(r"(?:[)}]|\b(?:const|noexcept|override|final|mutable|try)|->\s*[\w:<>,&*\s]+)$", stripped))
