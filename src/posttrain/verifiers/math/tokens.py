"""LaTeX or plain text → tokens. What only changes the look is dropped here; what a token means is the parser's."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

from posttrain.verifiers.math.words import FUNCTIONS, GREEK, SHORT_UNITS, SHORT_WORDS

MAX_TOKENS = 1_500


class Unreadable(Exception):
    """The text is none of the forms of an answer that this grammar knows."""


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    """`number`, `symbol`, `word`, `command` or the character itself."""
    text: str
    spaced: bool = False
    """Whether space stands before it."""
    value: Fraction | None = None
    """Of a number."""


_CHARACTERS = {
    "−": "-", "–": "-", "—": "-", "﹣": "-", "×": "\\times ", "⋅": "\\cdot ", "·": "\\cdot ", "∙": "\\cdot ",
    "•": "\\cdot ", "÷": "\\div ", "√": "\\sqrt ", "π": "\\pi ", "∞": "\\infty ", "≤": "\\le ", "≥": "\\ge ",
    "≠": "\\ne ", "∪": "\\cup ", "∩": "\\cap ", "∈": "\\in ", "∅": "\\emptyset ", "±": "\\pm ", "∓": "\\mp ",
    "°": "^\\circ ", "ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}", "⟨": "\\langle ", "⟩": "\\rangle ", "∑": "\\sum ",
    "∫": "\\int ", "∏": "\\prod ", "≈": "\\approx ", "∖": "\\setminus ", "’": "'", "′": "'", "\u00a0": " ",
    "\u2009": " ", "\u202f": " ", "⌊": "\\lfloor ", "⌋": "\\rfloor ", "⌈": "\\lceil ", "⌉": "\\rceil ", "∨": " or ",
    "∧": " and ", "θ": "\\theta ", "α": "\\alpha ", "β": "\\beta ", "γ": "\\gamma ", "λ": "\\lambda ", "φ": "\\phi ",
    "ω": "\\omega ", "μ": "\\mu ", "σ": "\\sigma ", "€": "\\euro ", "£": "\\pound ",
}  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SAME_COMMANDS = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom", "leq": "le", "geq": "ge",
    "leqslant": "le", "geqslant": "ge", "lt": "<", "gt": ">", "neq": "ne", "varnothing": "emptyset", "lbrace": "{",
    "rbrace": "}", "lvert": "|", "rvert": "|", "vert": "|", "mid": "|", "colon": ":", "ast": "times", "land": "and",
    "lor": "or", "vee": "or", "wedge": "and", "backslash": "setminus", "degree": "circ", "isin": "in", "lbrack": "[",
    "rbrack": "]", "cdotp": "cdot", "bmod": "mod", "infin": "infty", "R": "mathbb",
}  # fmt: skip
_SPACES = re.compile(
    r"(?<!\\)\\[,;:> ]|~|\\(?:quad|qquad|thinspace|enspace|hfill|newline)(?![a-zA-Z])|\\h?space\*?\{[^{}]*\}"
)
_LOOK = re.compile(
    r"\\!|\\(?:left|right)\.|\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|scriptstyle|limits|nolimits|strut|mathstrut"
    r"|bf|rm|it|sf|mathopen|mathclose|mathord|nobreak|ensuremath|Large|large|small|tiny|centering|noindent)(?![a-zA-Z])"
)
_MATH_DELIMITER = re.compile(r"(?<!\\)\$|(?<!\\)\\[()\[\]]")
_TEXT_COMMAND = re.compile(
    r"\\(?:text(?:bf|rm|it|sf|tt|normal)?|mbox|hbox|mathrm|operatorname\*?|mathsf|mathtt|emph)\s*\{"
)
_FONT_COMMAND = re.compile(r"\\(?:mathbf|boldsymbol|bm|mathit|mathcal|pmb|mathnormal|underline|boxed|fbox)(?![a-zA-Z])")
_GROUPED = r"[0-9]{1,3}(?:(?:,|\{,\}|\\,)[0-9]{3})+(?![0-9])(?:\.[0-9]+)?"
_SPACE_GROUPED = r"[0-9]{1,3}(?: [0-9]{3})+(?![0-9])(?:\.[0-9]+)?"
_PLAIN = r"[0-9]+\{,\}[0-9]+|[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_EXPONENT = r"(?:[eE][+-]?[0-9]{1,4}(?![0-9a-zA-Z]))?"
_NUMBER = re.compile(f"(?:{_GROUPED}|{_SPACE_GROUPED}|{_PLAIN}){_EXPONENT}")
_UNGROUPED = re.compile(f"(?:[0-9]{{1,3}}(?:(?:\\{{,\\}})[0-9]{{3}})+(?![0-9])|{_SPACE_GROUPED}|{_PLAIN}){_EXPONENT}")
_REPEATING = re.compile(r"([0-9]*)\.([0-9]*)(?:\\(?:overline|bar|dot)\s*(?:\{([0-9]+)\}|([0-9]))|\(([0-9]+)\))")
_TRAILING_DOTS = re.compile(r"([0-9]*)\.([0-9]*?)([0-9])\3\3+\s*(?:\\[lc]?dots|…|\.\.\.)")
_BASED = re.compile(
    r"(?<![0-9a-zA-Z.])([0-9A-Z]*[0-9][0-9A-Z]*|[A-Z]{2,})_(?:\{\s*([0-9]{1,2})\s*\}|([0-9]{1,2}))(?![0-9])"
)
_BASE_NAMES = {"two": "2", "eight": "8", "ten": "10", "sixteen": "16"}
_NAMED_BASE = re.compile(r"_\{?\s*\\text\s*\{\s*(two|eight|ten|sixteen)\s*\}\s*\}?")
_VULGAR = re.compile("[¼-¾⅐-⅞]")
_LETTERS = re.compile(r"[A-Za-z]+")
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)", re.DOTALL)


def tidy(text: str) -> str:
    """Without what only changes the look; one spelling for what has several."""
    for character, spelling in _CHARACTERS.items():
        text = text.replace(character, spelling)
    text = _VULGAR.sub(lambda match: _vulgar(match.group()), text)
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda match: f"^{{{match.group().translate(_SUPERSCRIPTS)}}}", text)
    text = re.sub("[₀-₉]+", lambda match: f"_{{{match.group().translate(_SUBSCRIPTS)}}}", text)
    text = re.sub(r"(?<=[0-9])\\[,;!](?=[0-9]{3}(?![0-9]))", " ", text)
    text = re.sub(r"(?<=[0-9]),\\!(?=[0-9]{3}(?![0-9]))", "{,}", text)
    text = re.sub(r"\\(?:text|mathrm|mbox)\s*\{\s*\}", " ", re.sub(r"(?<=\\\\)\[[0-9a-z. ]*\]", "", text))
    text = _NAMED_BASE.sub(lambda match: f"_{_BASE_NAMES[match[1]]}", text)
    text = _LOOK.sub(" ", _FONT_COMMAND.sub(" ", _SPACES.sub(" ", text)))
    text = _MATH_DELIMITER.sub(" ", text.replace("\\$", "\\dollar "))
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"(?<=[^.\s])\s*\.$|[;,]$", "", text).strip()


def _vulgar(character: str) -> str:
    upper, _, lower = unicodedata.normalize("NFKC", character).partition("\u2044")
    return f" \\frac{{{upper}}}{{{lower}}}"


def tokenize(text: str, *, grouped: bool) -> list[Token]:
    """Of tidied text. With `grouped`, `1,234` outside of brackets is one number. Raises `Unreadable`."""
    return _Tokenizer(text, grouped).run()


class _Tokenizer:
    def __init__(self, text: str, grouped: bool) -> None:
        self._text = text
        self._grouped = grouped
        self._at = 0
        self._depth = 0
        self._text_depths: list[int] = []
        """Brace depths at which a `\\text{` was opened and not closed."""
        self._braces = 0
        self._tokens: list[Token] = []

    def run(self) -> list[Token]:
        while self._at < len(self._text):
            spaced = self._text[self._at] == " "
            self._at += spaced
            if self._at < len(self._text):
                self._one(spaced)
            if len(self._tokens) > MAX_TOKENS:
                raise Unreadable("the answer is too long")
        return self._tokens

    def _one(self, spaced: bool) -> None:
        for pattern, add in (
            (_TEXT_COMMAND, self._open_text),
            (_BASED, self._based),
            (_REPEATING, self._repeating),
            (_TRAILING_DOTS, self._trailing),
            (_NUMBER if self._grouped and self._depth == 0 else _UNGROUPED, self._number),
            (_LETTERS, self._letters),
            (_COMMAND, self._command),
        ):
            match = pattern.match(self._text, self._at)
            if match and add(match, spaced):
                self._at = match.end()
                return
        self._character(self._text[self._at], spaced)
        self._at += 1

    def _add(self, kind: str, text: str, spaced: bool, value: Fraction | None = None) -> bool:
        self._tokens.append(Token(kind, text, spaced, value))
        return True

    def _open_text(self, match: re.Match[str], spaced: bool) -> bool:
        del spaced
        self._braces += 1
        self._text_depths.append(self._braces)
        self._add("{", "{", " " in match.group() or self._text[match.end() : match.end() + 1] == " ")
        return True

    def _based(self, match: re.Match[str], spaced: bool) -> bool:
        base = int(match[2] or match[3])
        try:
            return self._add("number", match.group(), spaced, Fraction(int(match[1], base)) if base > 1 else None)
        except ValueError:  # a digit that this base has not
            return False

    def _repeating(self, match: re.Match[str], spaced: bool) -> bool:
        whole, fixed, period = match[1], match[2], match[3] or match[4] or match[5]
        return self._add("number", match.group(), spaced, _repeating(whole, fixed, period))

    def _trailing(self, match: re.Match[str], spaced: bool) -> bool:
        return self._add("number", match.group(), spaced, _repeating(match[1], match[2], match[3]))

    def _number(self, match: re.Match[str], spaced: bool) -> bool:
        text = match.group()
        if re.search(r"\{,\}(?![0-9]{3}(?:[^0-9]|$))", text):
            text = text.replace("{,}", ".")
        digits = re.sub(r"\{,\}|\\,|[, ]", "", text)
        return self._add("number", digits, spaced, Fraction(_pointed(digits)))

    def _letters(self, match: re.Match[str], spaced: bool) -> bool:
        run = match.group()
        if self._text_depths:
            return self._add("word", run, spaced)
        if run in FUNCTIONS or run in ("pi", "infty"):
            return self._add("command", run, spaced)
        if run in GREEK:
            return self._add("symbol", f"\\{run}", spaced)
        if len(run) == 1:
            return self._add("symbol", run, spaced)
        if len(run) > 3 or run.lower() in SHORT_WORDS or (run in SHORT_UNITS and self._follows_number()):
            return self._add("word", run, spaced)
        for index, letter in enumerate(run):
            self._add("symbol", letter, spaced and index == 0)
        return True

    def _command(self, match: re.Match[str], spaced: bool) -> bool:
        name = match.group()[1:]
        if name == "|":
            return self._add("‖", name, spaced)
        name = _SAME_COMMANDS.get(name, name)
        if name in GREEK:
            return self._add("symbol", f"\\{name}", spaced)
        if name in ("or", "and"):
            return self._add("word", name, spaced)
        if name in ("{", "}"):
            self._depth += 1 if name == "{" else -1
            return self._add(f"\\{name}", name, spaced)
        if len(name) == 1 and not name.isalpha():
            return self._add(name if name != "\\" else "\\\\", name, spaced)
        if name in ("langle", "rangle"):
            self._depth += 1 if name == "langle" else -1
        return self._add("command", name, spaced)

    def _character(self, character: str, spaced: bool) -> None:
        if character in "([":
            self._depth += 1
        elif character in ")]":
            self._depth -= 1
        elif character == "{":
            self._braces += 1
        elif character == "}":
            if self._text_depths and self._text_depths[-1] == self._braces:
                self._text_depths.pop()
            self._braces -= 1
        self._add(character, character, spaced)

    def _follows_number(self) -> bool:
        return bool(self._tokens) and self._tokens[-1].kind in ("number", "}", ")", "command")


def _pointed(digits: str) -> str:
    """As `Fraction` reads it: `5.` and `.5` have a digit on both sides."""
    digits = f"0{digits}" if digits.startswith(".") else digits
    return re.sub(r"\.(?=$|[eE])", "", digits)


def _repeating(whole: str, fixed: str, period: str) -> Fraction:
    scale = 10 ** len(fixed)
    head = Fraction(int(f"{whole or '0'}{fixed}"), scale)
    return head + Fraction(int(period), scale * (10 ** len(period) - 1))
