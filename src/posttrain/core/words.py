"""Common English nouns of up to six letters: what word tasks are made of, and one token each for `seedling`.

The order gives token ids and tasks: changing it makes another model and other tasks. It says nothing about meaning.
"""

from __future__ import annotations

_TEXT = """
acid acorn actor age agent air alarm album angle ant apple april apron area arm army arrow art ash atom aunt
baby back bag ball band bank barn base bath beach bean bear bed bee bell belt bench berry bike bird boat body bone
book boot boss bowl box boy brain bread brick bridge broom brush bus bush button cabin cable cage cake calf camel
camp candle cap car card cart case castle cat cave chair chalk cheese cherry chest chin church city clay clock
cloud club coal coat coin comb cook corn cow crab cream crowd crown cup dance day deer desk dish dog doll door dove
dragon dream dress drum duck dust eagle ear earth east edge egg elbow engine error eye face fact farm fence field
fig film finger fire fish flag floor flower fly food foot forest fork fox frog fruit game garden gate ghost gift
girl glass glove goat gold grape grass guest guitar hair hall hammer hand hat hawk head heart hen hill hole home
honey hook horn horse hotel house ice idea ink iron island jacket jam jar jaw jeans jewel job joke judge juice
jungle key king kite knee knife knot ladder lake lamb lamp leaf leg lemon letter light lion lip list lock log lunch
magic maid map market mask meal meat metal milk mill mine moon moth mouse mouth music nail name neck nest net night
noise north nose note nurse oak ocean office oil olive onion orange oven owl page paint pan paper park party path
pea pear pen piano pie pig pilot pipe plant plate pond pool queen quilt rabbit radio rain rat rice ring river road
robot rock roof room rope rose sail salt sand school sea seed sheep ship shirt shoe shop silk singer sky snail snow
soap sock song soup spoon star stone storm sugar sun table tail tea tent tiger tin toe tooth town toy train tree
truck turtle uncle van vase video voice wagon wall watch water wave whale wheel wind wing wolf wood yard year zebra
"""
WORDS = tuple(_TEXT.split())
