"""The fixed vocabulary of `seedling`: control tokens, every byte, and the words of short tasks and small programs.

A word of these lists is one token where it stands by itself; any other text is spelled in bytes, and every digit is a
token of its own. The order gives the ids: changing it makes another model. It is chosen by hand, not trained.
"""

from __future__ import annotations

from posttrain.core.words import WORDS

PAD, END = "<|pad|>", "<|end|>"
CONTROL_TOKENS = (PAD, "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", END)

_RUNNING_WORDS = """
a about above according add added adding addition after all also alphabet alphabetical alphabetically an and answer
answers any appear appears are argument arguments as ascending at backwards be because before begin begins below
between big bigger biggest both brackets but by calculate called can capital carry case change character characters
check code comes comma commas common complete compute consists consonants contain contains correct count counting
counts decimal define definition descending difference digit digits divide divided dividing do does done each earlier
either element elements else empty end ends equal equals even every exactly example examples expression false fewer
final find first five follow following follows for format four from function functions get give given gives greater
greatest has have how if in increasing index input inputs inside instead integer integers into is it item items its
join just keep known largest last later leave left length less letter letters like line lines list lists long longer
longest lower lowercase make many maximum mean means method middle minimum minus missing modulo more most multiplied
multiply must name need negative new next no none not nothing now number numbers occur occurs odd of off old on once one
only operation or order ordered original other out output pair parentheses part plus position positive prime print
problem product program put python question quotient read remainder remaining remove repeat repeated replace reply
result results return returned returns reverse reversed right row same second separated sequence set shall short shorter
shortest should show single small smaller smallest so solution solve some sort sorted space spaces spell spelled
spelling square stand start starts step steps string strings subtract subtracting sum swap take takes ten test tests
text than that the their them then there these they third this those three times to together total true tuple two under
until up uppercase use used using value values vowel vowels want was we well what when where which while whole with
without word words work write written you your zero
absolute adds decreased default divisible increased larger multiples multiplies negated negates replaced squared squares
subtracts
"""

_STARTING_WORDS = """
A Add All An Answer Arrange Calculate Complete Compute Count Define Do Each End Example Explain Find First For From
Give Given Here How I If In Input Is It List Make Now Only Order Output Print Put Python Question Reply Return Reverse
So Solve Sort Spell Step Sum Take The Then There They This To Use What Which Word Words Write You
"""

_CODE_WORDS = """
abs all and any append args as assert bool break chr class continue def del dict elif else enumerate except extend
False filter float for from get if import in index int is isdigit isalpha items join key keys lambda len list lower map
math max min None not or ord pass pop print prod range replace result return reversed self set sort sorted split start
str strip sum total True try tuple type upper value values while with yield zip
"""

_NAMES_IN_CODE = """
a b c d e f g h i j k l m n o p q r s t u v w x y z count item letter number numbers text word words xs ys
"""

_NAMES = """
A B C D E F G H N X Y Ann Bob Cam Dan Eva Fay Gus Hal Ida Jon Kim Leo Max Ned Pam Sue
"""

_MARKS = """
(): ): () ()) [] [:: :: ::- [: [::- ]) ]: )) )), (( ([ (' ', '] ') '. '; (" ", ") "" '' == != <= >= += -= *= // **
-> .. ... ``` -- ], ). ]. [- (- :] :]) :]. '))
"""

_SPACED_MARKS = """
= + - * / // % ** == != < > <= >= += -= *= ( [ { ' " -> #
"""

# A line break comes with the indentation behind it, less the space that begins the next word.
_INDENTATIONS = ("\n\n", *("\n" * breaks + " " * spaces for breaks in (1, 2) for spaces in (3, 7, 11, 15)), "  ", "   ")


def word_tokens() -> list[str]:
    """The multi-byte tokens as text, each once, in the order of their ids."""
    anywhere = [*_STARTING_WORDS.split(), *_CODE_WORDS.split(), *_NAMES_IN_CODE.split(), *_NAMES.split()]
    spaced = [*_RUNNING_WORDS.split(), *anywhere, *WORDS, *_SPACED_MARKS.split()]
    tokens = [*(f" {word}" for word in spaced), *anywhere, *_MARKS.split(), *_INDENTATIONS]
    return list(dict.fromkeys(token for token in tokens if len(token) > 1))
