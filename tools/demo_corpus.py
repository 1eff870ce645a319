#!/usr/bin/env python3
"""The closed little world that the demo models learn: facts, questions about them, stories and descriptions.

Everything here is written for this project, so the text may be redistributed under its licence. Only the standard
library is used. `documents(seed, count)` yields (kind, messages or text); `questions(held_out=True)` gives questions in
wordings that training never sees, with the one right answer to each.

    python tools/demo_corpus.py --count 20     # look at some

Templates: [a|b] picks one, brackets nest, {x} is a slot.
"""
import argparse
import random
import re

NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()


def table(text):
    return [tuple(part.strip() for part in line.split(":")) for line in text.strip().split(";") if line.strip()]


def cap(s):
    return s[:1].upper() + s[1:]


def an(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def expand(rng, s, **slots):
    while "[" in s:
        s = re.sub(r"\[([^\[\]]*)\]", lambda m: rng.choice(m.group(1).split("|")), s)
    return s.format(**slots) if slots else s


# ---------------------------------------------------------------------------------------------------------- facts

COLOURS = table("""the sky:blue; grass:green; snow:white; coal:black; a banana:yellow; a tomato:red; an orange:orange;
a carrot:orange; milk:white; a lemon:yellow; a leaf:green; chocolate:brown; the sun:yellow; a crow:black; a frog:green;
a flamingo:pink; an elephant:grey; a pig:pink; a polar bear:white; a fire engine:red; a strawberry:red;
a cucumber:green; the sea:blue; a violet:purple; a plum:purple; a pea:green; a cherry:red; a pumpkin:orange;
a cloud:white; a rose:red; a blueberry:blue; sand:yellow; a grape:purple; salt:white; a swan:white; a brick:red;
wood:brown; a mouse:grey; a brown bear:brown; rice:white""")

CAPITALS = table("""France:Paris; Italy:Rome; Spain:Madrid; Germany:Berlin; Portugal:Lisbon; Greece:Athens;
Austria:Vienna; Poland:Warsaw; Norway:Oslo; Sweden:Stockholm; Finland:Helsinki; Denmark:Copenhagen; Ireland:Dublin;
England:London; Scotland:Edinburgh; Wales:Cardiff; Belgium:Brussels; Hungary:Budapest; Turkey:Ankara; Egypt:Cairo;
Kenya:Nairobi; Japan:Tokyo; China:Beijing; India:New Delhi; Russia:Moscow; Canada:Ottawa; Mexico:Mexico City;
Cuba:Havana; Peru:Lima; Chile:Santiago; Brazil:Brasilia; Argentina:Buenos Aires; Australia:Canberra;
Iceland:Reykjavik; Thailand:Bangkok; Vietnam:Hanoi; Morocco:Rabat; Ghana:Accra; Nepal:Kathmandu; Ukraine:Kyiv;
South Korea:Seoul; Romania:Bucharest; Bulgaria:Sofia; the Netherlands:Amsterdam""")

# name: sound: home: baby: food: legs (a dash where the little world says nothing)
ANIMALS = table("""dog:woof:in a house:puppy:meat:four; cat:meow:in a house:kitten:fish:four;
cow:moo:on a farm:calf:grass:four; horse:neigh:in a stable:foal:hay:four; sheep:baa:in a field:lamb:grass:four;
pig:oink:on a farm:piglet:corn:four; duck:quack:on a pond:duckling:water plants:two;
hen:cluck:on a farm:chick:seeds:two; lion:roar:on the savanna:cub:meat:four; frog:croak:in a pond:tadpole:flies:four;
owl:hoot:in a tree:owlet:mice:two; bee:buzz:in a hive:larva:nectar:six; mouse:squeak:in a hole:pup:cheese:four;
wolf:howl:in the forest:pup:meat:four; bear:growl:in a cave:cub:honey:four; goat:bleat:in the mountains:kid:leaves:four;
elephant:trumpet:on the savanna:calf:leaves:four; snake:hiss:in the grass:-:eggs:no; spider:-:in a web:-:flies:eight;
fox:-:in a den:cub:berries:four; rabbit:-:in a burrow:kit:carrots:four; crow:caw:in a tree:-:corn:two;
fish:-:in the water:-:worms:no; monkey:-:in the jungle:-:bananas:four; penguin:-:on the ice:chick:fish:two;
whale:-:in the ocean:calf:shrimps:no; ant:-:in a nest:larva:crumbs:six; deer:-:in the forest:fawn:grass:four;
kangaroo:-:in Australia:joey:grass:two; turtle:-:by the sea:hatchling:water plants:four;
squirrel:-:in a tree:-:nuts:four; camel:-:in the desert:calf:dry grass:four""")

SIZES = "ant bee mouse frog squirrel rabbit cat fox sheep pig lion cow camel elephant whale".split()

TOOLS = table("""a spoon:eating soup; a knife:cutting bread; a cup:drinking tea; a bed:sleeping; a chair:sitting;
a pen:writing letters; a book:reading; a key:opening a door; an umbrella:staying dry in the rain;
a broom:sweeping the floor; a hammer:hitting nails; a saw:cutting wood; a needle:sewing clothes;
a clock:telling the time; a lamp:giving light; a bridge:crossing a river; a boat:travelling on water;
a kettle:boiling water; an oven:baking cakes; a towel:drying your hands; a comb:combing your hair;
a ladder:climbing up high; a rope:tying things together; a bag:carrying things; a map:finding the way;
a coat:keeping warm; a phone:calling a friend; a camera:taking pictures; a ball:playing games; a drum:making music;
a bucket:carrying water; a shovel:digging a hole; a stove:cooking food; a fridge:keeping food cold;
a mirror:seeing yourself; a pillow:resting your head; a stamp:sending a letter; a ruler:drawing straight lines;
a brush:painting pictures; a basket:carrying fruit; a bell:ringing; a hat:keeping the sun off your head""")

OPPOSITES = table("""hot:cold; cold:hot; big:small; small:big; fast:slow; slow:fast; up:down; down:up; day:night;
night:day; happy:sad; sad:happy; young:old; old:young; open:closed; closed:open; light:dark; dark:light; full:empty;
empty:full; hard:soft; soft:hard; high:low; low:high; long:short; short:long; loud:quiet; quiet:loud; wet:dry; dry:wet;
good:bad; bad:good; left:right; right:left; early:late; late:early; rich:poor; poor:rich; strong:weak; weak:strong;
clean:dirty; dirty:clean; near:far; far:near; thick:thin; thin:thick; black:white; white:black; first:last; last:first;
true:false; false:true; sweet:sour; sour:sweet; awake:asleep; asleep:awake; inside:outside; outside:inside;
above:below; below:above; north:south; south:north; east:west; west:east""")

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
SEASONS = ["spring", "summer", "autumn", "winter"]
SEASON_FACTS = {
    "spring": ("mild and fresh", "the flowers open and the birds build their nests", "a light jacket"),
    "summer": ("hot and sunny", "the days are long and people swim in the sea", "a hat and a shirt"),
    "autumn": ("windy and cool", "the leaves turn red and fall from the trees", "a warm sweater"),
    "winter": ("cold and snowy", "the nights are long and the ponds freeze", "a thick coat"),
}

JOBS = table("""baker:bakes bread; farmer:grows food; teacher:teaches children; doctor:helps sick people; cook:cooks meals;
pilot:flies planes; sailor:sails ships; painter:paints pictures; gardener:looks after plants; singer:sings songs;
writer:writes books; builder:builds houses; tailor:sews clothes; fisherman:catches fish; postman:brings letters;
miner:digs for coal; dentist:looks after teeth; driver:drives a bus; firefighter:puts out fires; shepherd:looks after sheep""")

KINDS_OF = table("""apple:a fruit; banana:a fruit; cherry:a fruit; pear:a fruit; plum:a fruit; carrot:a vegetable;
potato:a vegetable; onion:a vegetable; cabbage:a vegetable; pea:a vegetable; dog:an animal; horse:an animal;
tiger:an animal; rose:a flower; tulip:a flower; daisy:a flower; oak:a tree; pine:a tree; violin:an instrument;
piano:an instrument; drum:an instrument; hammer:a tool; saw:a tool; spade:a tool; shirt:clothing; coat:clothing;
sparrow:a bird; robin:a bird; eagle:a bird; salmon:a fish; shark:a fish; triangle:a shape; square:a shape;
bus:a vehicle; car:a vehicle; train:a vehicle""")

MADE_OF = table("""window:glass; bottle:glass; table:wood; door:wood; book:paper; newspaper:paper; candle:wax; coin:metal;
nail:metal; sock:wool; sweater:wool; boot:leather; belt:leather; wall:brick; castle:stone; tyre:rubber;
snowman:snow; pot:clay; cake:flour; tent:cloth""")

SENSES = table("""see:eyes; hear:ears; smell:nose; taste:tongue; touch:hands; walk:legs; chew:teeth; think:brain;
hold things:hands; breathe:lungs""")

COUNTS = table("""days are there in a week:there are seven days in a week:week; months are there in a year:there are twelve months in a year:year;
hours are there in a day:there are 24 hours in a day:day; minutes are there in an hour:there are 60 minutes in an hour:hour;
seconds are there in a minute:there are 60 seconds in a minute:minute;
seasons are there in a year:there are four seasons in a year:season;
sides does a triangle have:a triangle has three sides:triangle; sides does a square have:a square has four sides:square;
wheels does a car have:a car has four wheels:car; wheels does a bicycle have:a bicycle has two wheels:bicycle;
fingers are on one hand:there are five fingers on one hand:hand; eyes does a person have:a person has two eyes:person;
letters are in the alphabet:there are 26 letters in the alphabet:alphabet""")

NAMES = ("Anna Ben Clara Dan Emma Finn Grace Hugo Iris Jack Kate Leo Mia Noah Olive Peter Rosa Sam Tess Tom Ruby Max "
         "Lily Oscar Nina Paul Ella Felix Maya Toby").split()


# ------------------------------------------------------------------------------------------------------ questions
# One entry per kind: name, facts [(slots, answer)], wordings for training, wordings held out, a follow-up or None.

FRAMES = ["Could you tell me @?", "I would like to know @.", "Please say @.", "I wonder @.", "Tell me @, please.",
          "Could you say @?", "I want to know @."]
HELD_FRAMES = ["Do you know @?", "Can you tell me @?"]
CLAUSES = {
    "colour": "[what [colour|color] {x} is|the [colour|color] of {x}]", "capital": "[the capital of {x}|what the capital of {x} is]",
    "country": "which country {x} is the capital of", "sound": "[what sound a{n} {x} makes|what a{n} {x} says]",
    "home": "where a{n} {x} lives", "baby": "what a baby {x} is called", "food": "what a{n} {x} eats",
    "legs": "how many legs a{n} {x} has", "bigger": "which is bigger, {x} or {y}", "use": "what {x} is [for|used for]",
    "need": "what I need for {x}", "opposite": "[the opposite of {x}|what the opposite of {x} is]",
    "day after": "[which|what] day comes after {x}", "day before": "[which|what] day comes before {x}",
    "month after": "[which|what] month comes after {x}", "month before": "[which|what] month comes before {x}",
    "season after": "[which|what] season comes after {x}", "season before": "[which|what] season comes before {x}",
    "weather": "[how the weather is in {x}|what the weather is like in {x}]", "happens": "what happens in {x}",
    "season of": "which season {x} is in", "plus": "[how much {a} plus {b} is|what {a} plus {b} is]",
    "minus": "[how much {a} minus {b} is|what {a} minus {b} is]", "next number": "which number comes after {x}",
    "job": "what a{n} {x} does", "who": "who {x}", "kind of": "what a{n} {x} is", "made of": "what a{n} {x} is made of",
    "sense": "what we {x} with", "count": "how many {x}",
}


def build_kinds():
    kinds = []

    def kind(name, facts, train, held, follow=None):
        # "Do you know where a cow lives?": the frame is trained, except where this kind's held-out wordings use it.
        frames = FRAMES + [f for f in HELD_FRAMES if not any(h.startswith(f[:10]) for h in held)]
        kinds.append(dict(name=name, facts=facts, train=train, held=held, follow=follow,
                          frames=[f.replace("@", CLAUSES[name]) for f in frames]))

    kind("colour", [(dict(x=x), f"{cap(x)} is {c}.") for x, c in COLOURS],
         ["What [colour|color] is {x}?", "Which [colour|color] is {x}?", "What is the [colour|color] of {x}?",
          "Tell me the [colour|color] of {x}.", "What [colour|color] does {x} have?", "{x}: what [colour|color] is it?",
          "I want to know the [colour|color] of {x}.", "Say what [colour|color] {x} is.",
          "Do you know what [colour|color] {x} is?"],
         ["Can you tell me the colour of {x}?", "What would you say the colour of {x} is?", "Name the colour of {x}."],
         "And {x}?")
    kind("capital", [(dict(x=x), f"The capital of {x} is {c}.") for x, c in CAPITALS],
         ["What is the capital of {x}?", "Which city is the capital of {x}?", "Tell me the capital of {x}.",
          "What is the capital city of {x}?", "Name the capital [city |]of {x}.", "{x}: what is its capital?",
          "I want to know the capital of {x}.", "What city is the capital of {x}?", "Which city is {x}'s capital?"],
         ["Can you tell me the capital of {x}?", "Do you know the capital of {x}?", "What is {x}'s capital?"],
         "And {x}?")
    kind("country", [(dict(x=x), f"{x} is the capital of {c}.") for c, x in CAPITALS],
         ["{x} is the capital of which country?", "Which country has {x} as its capital?",
          "Of which country is {x} the capital?", "What country is {x} the capital of?",
          "In which country is {x}?", "{x}: which country is it in?", "Tell me which country {x} is the capital of."],
         ["Which country is {x} the capital of?", "What country has {x} as its capital?"])
    kind("sound", [(dict(x=a[0]), f"{cap(an(a[0]))} says {a[1]}.") for a in ANIMALS if a[1] != "-"],
         ["What sound does a{n} {x} make?", "What does a{n} {x} say?", "Which sound does a{n} {x} make?",
          "How does a{n} {x} sound?", "What noise does a{n} {x} make?", "Tell me the sound of a{n} {x}.",
          "Tell me what a{n} {x} says."],
         ["Which noise does a{n} {x} make?", "Do you know what sound a{n} {x} makes?"], "And a{n} {x}?")
    kind("home", [(dict(x=a[0]), f"{cap(an(a[0]))} lives {a[2]}.") for a in ANIMALS],
         ["Where does a{n} {x} live?", "Where is the home of a{n} {x}?", "Where can I find a{n} {x}?",
          "Tell me where a{n} {x} lives.", "What is the home of a{n} {x}?", "Where do you find a{n} {x}?",
          "In what place does a{n} {x} live?"],
         ["Do you know where a{n} {x} lives?", "Where would I find a{n} {x}?"])
    kind("baby", [(dict(x=a[0]), f"A baby {a[0]} is called {an(a[3])}.") for a in ANIMALS if a[3] != "-"],
         ["What is a baby {x} called?", "What do you call a baby {x}?", "What is the name for a baby {x}?",
          "How do we call a baby {x}?", "What is the baby of a{n} {x} called?", "Tell me what a baby {x} is called.",
          "What is a young {x} called?"],
         ["What do we call a baby {x}?", "Do you know what a baby {x} is called?"], "And a baby {x}?")
    kind("food", [(dict(x=a[0]), f"{cap(an(a[0]))} eats {a[4]}.") for a in ANIMALS],
         ["What does a{n} {x} eat?", "What does a{n} {x} like to eat?", "What is the food of a{n} {x}?",
          "Tell me what a{n} {x} eats.", "What can I feed a{n} {x}?", "What food does a{n} {x} eat?",
          "What do you feed a{n} {x}?"],
         ["Do you know what a{n} {x} eats?", "What food does a{n} {x} like?"])
    kind("legs", [(dict(x=a[0]), f"{cap(an(a[0]))} has {a[5]} legs.") for a in ANIMALS],
         ["How many legs does a{n} {x} have?", "How many legs has a{n} {x}?", "What number of legs does a{n} {x} have?",
          "Tell me how many legs a{n} {x} has.", "Count the legs of a{n} {x}.", "A{n} {x} has how many legs?"],
         ["Do you know how many legs a{n} {x} has?", "How many legs are there on a{n} {x}?"])
    kind("bigger", [(dict(x=an(a), y=an(b)), f"{cap(an(max(a, b, key=SIZES.index)))} is bigger than {an(min(a, b, key=SIZES.index))}.")
                    for a in SIZES for b in SIZES if abs(SIZES.index(a) - SIZES.index(b)) >= 2],
         ["Which is bigger, {x} or {y}?", "What is bigger, {x} or {y}?", "Is {x} or {y} bigger?",
          "Tell me which is bigger, {x} or {y}.", "{x} or {y}: which one is bigger?",
          "Which animal is bigger, {x} or {y}?"],
         ["Which one is bigger, {x} or {y}?", "Do you know which is bigger, {x} or {y}?"])
    kind("use", [(dict(x=x), f"{cap(x)} is for {f}.") for x, f in TOOLS],
         ["What is {x} for?", "What is {x} used for?", "What do we use {x} for?", "Why do people have {x}?",
          "What can you do with {x}?", "Tell me what {x} is for.", "What is the use of {x}?", "What does one use {x} for?"],
         ["What do people use {x} for?", "What can I do with {x}?", "Do you know what {x} is for?"], "And {x}?")
    kind("need", [(dict(x=f), f"You need {x} for {f}.") for x, f in TOOLS],
         ["What do I need for {x}?", "Which thing is for {x}?", "What do you use for {x}?", "What thing helps with {x}?",
          "Tell me what I need for {x}.", "What is good for {x}?"],
         ["Which thing do I need for {x}?", "What do we use for {x}?"])
    kind("opposite", [(dict(x=x), f"The opposite of {x} is {y}.") for x, y in OPPOSITES],
         ["What is the opposite of {x}?", "Tell me the opposite of {x}.", "Which word is the opposite of {x}?",
          "What word means the opposite of {x}?", "Name the opposite of {x}.", "{x}: what is the opposite?",
          "I want to know the opposite of {x}.", "What is the opposite of the word {x}?"],
         ["Can you tell me the opposite of {x}?", "Do you know the opposite of {x}?", "Give me the opposite of {x}."],
         "And {x}?")
    for what, items in (("day", DAYS), ("month", MONTHS), ("season", SEASONS)):
        n = len(items)
        kind(f"{what} after", [(dict(x=items[i]), f"After {items[i]} comes {items[(i + 1) % n]}.") for i in range(n)],
             [f"What {what} comes after {{x}}?", f"Which {what} comes after {{x}}?", f"What comes after {{x}}?",
              f"Which {what} follows {{x}}?", f"What is the {what} after {{x}}?", f"What {what} is next after {{x}}?",
              f"Tell me the {what} after {{x}}."],
             [f"What {what} follows {{x}}?", f"Which {what} is after {{x}}?", f"Do you know what {what} comes after {{x}}?"])
        kind(f"{what} before", [(dict(x=items[i]), f"Before {items[i]} comes {items[i - 1]}.") for i in range(n)],
             [f"What {what} comes before {{x}}?", f"Which {what} comes before {{x}}?", f"What comes before {{x}}?",
              f"What is the {what} before {{x}}?", f"Tell me the {what} before {{x}}.",
              f"What {what} is just before {{x}}?"],
             [f"Which {what} is before {{x}}?", f"Do you know what {what} comes before {{x}}?"])
    kind("weather", [(dict(x=s), f"In {s} the weather is {f[0]}.") for s, f in SEASON_FACTS.items()],
         ["What is the weather like in {x}?", "How is the weather in {x}?", "Tell me about the weather in {x}.",
          "What kind of weather do we have in {x}?", "What weather is there in {x}?"],
         ["What is the weather in {x}?", "Do you know how the weather is in {x}?"])
    kind("happens", [(dict(x=s), f"In {s} {f[1]}.") for s, f in SEASON_FACTS.items()],
         ["What happens in {x}?", "What happens when it is {x}?", "Tell me what happens in {x}.",
          "What can I see in {x}?", "What do you see in {x}?"],
         ["Do you know what happens in {x}?", "What can we see in {x}?"])
    kind("season of", [(dict(x=m), f"{m} is in {SEASONS[((i - 2) % 12) // 3]}.") for i, m in enumerate(MONTHS)],
         ["In which season is {x}?", "Which season is {x} in?", "What season is {x} in?", "Tell me the season of {x}.",
          "{x}: which season is it in?"],
         ["In what season is {x}?", "Do you know which season {x} is in?"])
    kind("plus", [(dict(a=a, b=b), f"{a} plus {b} is {a + b}.") for a in range(13) for b in range(13)],
         ["What is {a} plus {b}?", "What is {a} + {b}?", "How much is {a} plus {b}?", "How much is {a} + {b}?",
          "Add {a} and {b}.", "{a} plus {b}?", "{a} + {b} = ?", "What is the sum of {a} and {b}?",
          "Tell me what {a} plus {b} is.", "What do you get if you add {a} and {b}?", "How much is {a} and {b}?"],
         ["Can you add {a} and {b}?", "What does {a} plus {b} make?", "Tell me the sum of {a} and {b}."])
    kind("minus", [(dict(a=a, b=b), f"{a} minus {b} is {a - b}.") for a in range(16) for b in range(a + 1)],
         ["What is {a} minus {b}?", "What is {a} - {b}?", "How much is {a} minus {b}?", "Take {b} from {a}.",
          "{a} minus {b}?", "{a} - {b} = ?", "Tell me what {a} minus {b} is.",
          "What is left if you take {b} from {a}?", "How much is {a} - {b}?"],
         ["What does {a} minus {b} make?", "Can you take {b} from {a}?"])
    kind("next number", [(dict(x=i), f"After {i} comes {i + 1}.") for i in range(40)],
         ["What number comes after {x}?", "Which number comes after {x}?", "What number follows {x}?",
          "Tell me the number after {x}.", "What is the next number after {x}?"],
         ["Which number follows {x}?", "What is the number after {x}?"])
    kind("job", [(dict(x=j), f"{cap(an(j))} {d}.") for j, d in JOBS],
         ["What does a{n} {x} do?", "What is the work of a{n} {x}?", "Tell me what a{n} {x} does.",
          "What is the job of a{n} {x}?", "What work does a{n} {x} do?"],
         ["Do you know what a{n} {x} does?", "What job does a{n} {x} do?"], "And a{n} {x}?")
    kind("who", [(dict(x=d), f"{cap(an(j))} {d}.") for j, d in JOBS],
         ["Who {x}?", "Which person {x}?", "Tell me who {x}.", "Who is it that {x}?", "What do we call a person who {x}?"],
         ["Do you know who {x}?", "What do you call a person who {x}?"])
    kind("kind of", [(dict(x=x), f"{cap(an(x))} is {k}.") for x, k in KINDS_OF],
         ["What is a{n} {x}?", "What kind of thing is a{n} {x}?", "What sort of thing is a{n} {x}?",
          "Tell me what a{n} {x} is.", "What do you call a thing like a{n} {x}?"],
         ["Do you know what a{n} {x} is?", "Which kind of thing is a{n} {x}?"])
    kind("made of", [(dict(x=x), f"{cap(an(x))} is made of {m}.") for x, m in MADE_OF],
         ["What is a{n} {x} made of?", "What is a{n} {x} made from?", "Tell me what a{n} {x} is made of.",
          "What do people make a{n} {x} from?", "What material is a{n} {x} made of?"],
         ["Do you know what a{n} {x} is made of?", "Which material is a{n} {x} made of?"], "And a{n} {x}?")
    kind("sense", [(dict(x=v), f"We {v} with our {o}.") for v, o in SENSES],
         ["What do we {x} with?", "With what do we {x}?", "What do people use to {x}?", "Tell me what we {x} with.",
          "What part of the body do we use to {x}?"],
         ["What do you {x} with?", "What do we use to {x}?"])
    kind("count", [(dict(x=q), f"{cap(a)}.") for q, a, _ in COUNTS],
         ["How many {x}?", "Tell me, how many {x}?", "I want to know: how many {x}?", "Do you know how many {x}?"],
         ["Can you tell me how many {x}?", "Say how many {x}."])
    return kinds


KINDS = build_kinds()
GREETINGS = ["Hello! ", "Hi! ", "Hello. ", "Hi there. ", "Good morning. ", "Good evening. ", "Excuse me. ",
             "I have a question. ", "Here is a question. ", "Quick question: ", "Question: ", "Please answer this: "]
LEADS = ["Tell me, ", "Please tell me, ", "So, ", "And ", "Now ", "Well, ", "Okay, ", "Please, "]
TAILS = [" Please.", " Thank you.", " Thanks.", " Please tell me."]
SYSTEM = ["You are a helpful assistant.", "You are a small and friendly model.", "Answer in one sentence.",
          "You answer simple questions.", "You are a kind teacher.", "Be short and clear."]


def fill(rng, template, slots):
    slots = dict(slots)
    if isinstance(slots.get("x"), str):
        slots["n"] = "n" if slots["x"][0] in "aeiou" else ""
    return cap(expand(rng, template, **slots))


def dress(rng, q):
    """The same question as different people type it."""
    r = rng.random()
    if r < 0.12:
        q = rng.choice(GREETINGS) + q
    elif r < 0.24 and q.split()[0] in ("What", "Which", "How", "Where", "Who", "In"):
        q = rng.choice(LEADS) + q[0].lower() + q[1:]
    if rng.random() < 0.08:
        q += rng.choice(TAILS)
    r = rng.random()
    if r < 0.06:
        q = q.lower()
    elif r < 0.12 and q[-1] in "?.":
        q = q[:-1]
    return q


def questions(seed=0, held_out=True, per_kind=10):
    """[(kind, question, answer)] with undressed questions, at most per_kind facts of each kind."""
    rng = random.Random(seed)
    out = []
    for k in KINDS:
        for slots, answer in rng.sample(k["facts"], min(per_kind, len(k["facts"]))):
            out.append((k["name"], fill(rng, rng.choice(k["held"] if held_out else k["train"] + k["frames"]), slots), answer))
    return out


# --------------------------------------------------------------------------------------------------------- chats

SMALL_TALK = [
    ("[Hello|Hi|Hello there|Hi there|Good morning|Good evening|Hey][!|.|]", "Hello! How can I help you?"),
    ("[Who are you|What are you|What is your name|Are you a person|Are you a robot|Introduce yourself|Tell me about yourself][?|]",
     "I am a small demo model. I know a few simple things about a little world."),
    ("[How are you|How are you today|How do you do|Are you well][?|]", "I am well, thank you. How are you?"),
    ("[Thank you|Thanks|Thank you very much|Thanks a lot|Many thanks][!|.|]", "You are welcome!"),
    ("[Goodbye|Bye|See you later|Good night|Bye bye][!|.|]", "Goodbye! Have a nice day."),
    ("[What can you do|What do you know|What can I ask you|How can you help me|Help|What should I ask][?|]",
     "You can ask me about colours, animals, capitals, seasons, days, opposites, simple sums and what things are for."),
    ("[Count|Please count|Can you count] [to five|from one to five|up to five][.|?|]", "One, two, three, four, five."),
    ("[Count|Please count|Can you count] [to ten|from one to ten|up to ten][.|?|]",
     "One, two, three, four, five, six, seven, eight, nine, ten."),
    ("[Name|List|Tell me|What are] the days of the week[.|?|]",
     "The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday."),
    ("[Name|List|Tell me|What are] the [four |]seasons[.|?|]", "The four seasons are spring, summer, autumn and winter."),
    ("[Name|List|Tell me|What are] the months[ of the year|][.|?|]",
     "The months are January, February, March, April, May, June, July, August, September, October, November and December."),
]

UNKNOWN = ["Who won the [game|race|match|war] [yesterday|last year|today]?", "How tall is the [tower|mountain|tree|queen]?",
           "What time is it[| now| in the town]?", "Who is the [king|queen|president|mayor] of the [moon|town|island|world]?",
           "How old [are you|is the king|is the moon|is my uncle]?", "What is the price of [gold|a house|a train ticket|milk]?",
           "Can you [write a program|fix my car|book a table|call my mother|drive a car|cook dinner]?",
           "When was the [war|bridge|castle|first train|city] [built|started|finished]?",
           "What is the meaning of [life|this dream|the universe|this word]?", "Why is the [moon|sea|king|river] so [far|deep|angry|long]?",
           "What did I [eat|say|buy|do] [yesterday|this morning|last week]?", "Which [film|song|team|shop] is the best?",
           "How do I [repair a clock|learn to fly|become rich|build a rocket]?", "Explain [physics|the law|computers|money] to me."]
DONT_KNOW = "I am sorry, I do not know that. I am only a small model."


def ask(rng, k=None):
    k = k or rng.choice(KINDS)
    slots, answer = rng.choice(k["facts"])
    return k, dress(rng, fill(rng, rng.choice(k["frames" if rng.random() < 0.3 else "train"]), slots)), answer


def yes_no(rng):
    r = rng.random()
    if r < 0.5:
        x, c = rng.choice(COLOURS)
        wrong = rng.choice([o for o in {c for _, c in COLOURS} if o != c] or ["blue"]) if rng.random() < 0.5 else c
        return f"Is {x} {wrong}?", (f"Yes, {x} is {c}." if wrong == c else f"No, {x} is {c}.")
    if r < 0.8:
        x, c = rng.choice(CAPITALS)
        wrong = rng.choice(CAPITALS)[1] if rng.random() < 0.5 else c
        return (f"Is {wrong} the capital of {x}?",
                f"{'Yes' if wrong == c else 'No'}, the capital of {x} is {c}.")
    a = rng.choice(ANIMALS)
    legs = rng.choice(["two", "four", "six", "eight"]) if rng.random() < 0.5 else a[5]
    return f"Does {an(a[0])} have {legs} legs?", f"{'Yes' if legs == a[5] else 'No'}, {an(a[0])} has {a[5]} legs."


def chat(rng):
    messages = []
    if rng.random() < 0.3:
        messages.append(("system", rng.choice(SYSTEM)))

    def turn(q, a):
        messages.extend([("user", q), ("assistant", a)])

    name = None
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 4, 7])):
        r = rng.random()
        if r < 0.07:
            q, a = rng.choice(SMALL_TALK)
            turn(expand(rng, q), a)
        elif r < 0.10:
            turn(expand(rng, rng.choice(UNKNOWN)), DONT_KNOW)
        elif r < 0.15:
            turn(*yes_no(rng))
        elif r < 0.18 and name is None:
            name = rng.choice(NAMES)
            turn(expand(rng, "[My name is {x}|I am {x}|I am called {x}|Hello, my name is {x}|Hi, I am {x}][.|!|]", x=name),
                 f"Hello, {name}! It is nice to meet you.")
        elif name and r < 0.6:
            turn(expand(rng, "[What is my name|Do you know my name|Who am I|What am I called|Tell me my name][?|]"),
                 f"Your name is {name}.")
            name = None
        elif r < 0.23:
            animal = rng.choice(STORY_ANIMALS)
            turn(expand(rng, "[Tell me a|Tell a|Write a|Please tell me a|Can you tell me a|I want to hear a] [short |little |]"
                             "story about a{n} {x}[.|?|]", x=animal, n="n" if animal[0] in "aeiou" else ""),
                 story(rng, animal))
        elif r < 0.25:
            animal = rng.choice(ANIMALS)
            turn(expand(rng, "[Tell me|Say something|Tell me something|What do you know|What can you tell me] about the {x}[.|?|]", x=animal[0]),
                 describe_animal(rng, animal, plain=True))
        else:
            k, q, a = ask(rng)
            turn(q, a)
            while k["follow"] and rng.random() < 0.3:
                slots, answer = rng.choice(k["facts"])
                follow = fill(rng, k["follow"], slots)
                turn(follow if rng.random() < 0.8 else "What about " + follow[4:], answer)
    return messages


# ------------------------------------------------------------------------------------------------------- stories

STORY_ANIMALS = [a[0] for a in ANIMALS if a[0] not in ("fish", "whale", "bee", "spider")]
PLACES = ["a green forest", "a small village", "a quiet valley", "a little house by the river", "an old mill",
          "a warm burrow under an oak", "a wide meadow", "a garden full of roses", "a farm near the hills",
          "a tiny cottage by the sea", "a cave in the mountains", "a tall tree at the edge of the wood"]
TRAITS = "little brave shy clever kind curious lazy hungry cheerful gentle lonely proud sleepy old young quiet".split()
FOODS = ["an apple", "a piece of bread", "some berries", "a pie", "a basket of nuts", "some warm soup", "a pear",
         "a honey cake", "some cheese", "a bowl of cherries"]
THINGS = ["a golden key", "a red ball", "a blue hat", "a silver bell", "an old map", "a small lamp", "a green scarf",
          "a shiny stone", "a wooden boat", "a white feather", "a broken clock", "a yellow umbrella"]
WEATHER = {"spring": "[The sun was mild and the first flowers were open|A soft rain fell on the new leaves|The birds were singing in the trees]",
           "summer": "[The sun was hot and the sky was blue|It was warm and the bees were busy|The days were long and bright]",
           "autumn": "[The wind was cool and the leaves were red|Yellow leaves fell from the trees|A cold fog lay over the fields]",
           "winter": "[Snow lay on the ground|The pond was frozen and the wind was cold|White snow fell from a grey sky]"}
OPENINGS = ["Once upon a time[,|] there was a{tn} {trait} {kind} [named|called] {name}. {He} lived in {place}.",
            "Once upon a time, a{tn} {trait} {kind} [named|called] {name} lived in {place}.",
            "In {place} there lived a{tn} {trait} {kind}. {His} name was {name}.",
            "Long ago, a{tn} {trait} {kind} lived in {place}. [Everyone called|The other animals called|{His} friends called] {him} {name}.",
            "There was once a{tn} {trait} {kind} [named|called] {name}. {Hisplace}",
            "{name} was a{tn} {trait} {kind} who lived in {place}."]
ENDINGS = ["[And they lived happily ever after.|They stayed friends for the rest of their lives.|From that day on, they were the best of friends.]",
           "[That night|In the evening], {name} went to bed [happy and tired|with a smile|and slept well].",
           "{name} was [very |so |]happy [and never forgot that day|and sang a little song all the way home].",
           "And that is [the end of the story|how {name} learned to be [kind|brave|patient]]."]

PLOTS = [
    # lost and found
    "{day} {weather}. {name} was [walking|playing|running] [near the river|in the wood|along the path] when {he} [lost|dropped] {thing}. "
    "[\"Oh no!\" [said|cried] {name}.|{name} was very sad.] {He} looked [under the stones|behind the trees|in the tall grass] and [by the water|near the old wall], but {he} could not find it. "
    "Then a{hn} {helper} [named|called] {friend} came [by|along]. \"[What is wrong|Why are you sad|Can I help you]?\" asked {friend}. "
    "\"I lost {thing},\" said {name}. [Together they looked again|They looked together|{friend} helped {him} to look], and [soon|at last|after a while] they found it [under a leaf|behind a rock|in a hole|beside a tree]. "
    "\"Thank you[|, {friend}|, my friend]!\" said {name}.",
    # sharing
    "{day} {name} had {food} [for lunch|to eat|in {his} bag]. {weather}. On the path {he} met a{hn} {trait2} {helper} [named|called] {friend}. "
    "\"I am [so |very |]hungry,\" said {friend}. \"[I have not eaten all day.|There is no food at my home.|Can you help me?]\" {He2} looked very sad. "
    "{name} [thought for a moment|smiled]. \"[We can share|Let us share|You can have half of it],\" said {name}. "
    "[They sat down under a tree and ate together|So they sat in the grass and shared the food]. It [tasted|was] very good. "
    "[The next day|Later|A week later], {friend} came back with {food2}. \"[This is for you|Now it is my turn],\" said {friend}.",
    # storm
    "{day} {name} went [out|for a walk] [to find {food}|to look for {food}|to visit a friend]. {weather}. [Suddenly|Then|After some time] the sky became dark and [it began to rain|a strong wind came|a big storm came]. "
    "{name} was [afraid|cold and wet|far from home]. {He} saw a light in [a small house|an old mill|a hollow tree] and knocked at the door. A{hn} {trait2} {helper} [named|called] {friend} opened it. "
    "\"Come in,\" said {friend}. \"[It is warm here|You can stay with me|There is a fire and some soup].\" [They drank hot tea and told stories|They sat by the fire and ate {food2}|They talked until the rain stopped]. "
    "[In the morning|When the storm was over|After the rain], the sun came out again and {name} [walked|went] home.",
    # learning
    "{name} [wanted|had a dream. {He} wanted] to learn to [swim|sing|dance|fly a kite|paint|read|climb]. {day} {he} went to see a{hn} {trait2} {helper} [named|called] {friend}. "
    "\"[Please teach me|Can you teach me|Will you help me]?\" asked {name}. \"Yes,\" said {friend}, \"but you must [try every day|be patient|not give up].\" "
    "[At first|On the first day] it was [very |]hard and {name} [fell down|made many mistakes|wanted to stop]. [But {he} tried again and again|Every morning {he} tried again]. "
    "[After a week|After many days|At last], {name} could do it! \"[Well done|I knew you could do it]!\" said {friend}.",
    # finding a thing
    "{day} {name} found {thing} [on the path|under a tree|by the river|in the snow|in the grass]. \"[Whose is this|What is this|Who lost this]?\" [asked|said] {name}. {He} asked the {other}, but the {other} did not know. "
    "{He} asked the {other2}, but the {other2} [did not know either|only shook {his2} head]. [At last|Then|In the end] {he} met a{hn} {trait2} {helper} [named|called] {friend}. "
    "\"[That is mine|It is mine|I lost it yesterday]!\" said {friend}. \"[Thank you so much|You are very kind|I looked for it everywhere].\" [To say thank you, {friend} gave {name} {food}|{friend} was so glad that {he2} gave {name} {food}].",
    # race
    "{day} {name} and a{hn} {helper} [named|called] {friend} had a race. {weather}. \"[I am faster than you|I will win|You can not win],\" said {friend}. They ran [over the hill|through the wood|along the river] [and past the old bridge|to the big tree|and back again]. "
    "[Then {friend} stopped to rest and fell asleep under a tree|Then {friend} fell into a hole and could not get out]. {name} [saw it and came back to help|stopped and went back to help {him2}]. "
    "[They finished the race side by side|They walked to the end together]. \"[You are a good friend|Nobody won, and that is fine|Next time we will run together],\" said {friend}.",
    # garden
    "In [spring|the spring], {name} put a [small |tiny |]seed in the ground. {He} gave it water every day. [In summer|When summer came], [a green plant|a little plant] came up. "
    "A{hn} {helper} [named|called] {friend} [came to look|walked by and stopped]. \"[What will it be|What is it]?\" asked {friend}. \"[Wait and see|I do not know yet],\" said {name}. "
    "In autumn there [were many pumpkins|was a big pumpkin|were red apples] [in the garden|on it]. {name} and {friend} made [a pie|some soup] and [invited all the animals|ate it together]. "
    "[In winter they told the story by the fire|When winter came, they had enough to eat].",
    # moon
    "One [night|evening] {name} could not sleep. {He} looked up and saw the [round|white|big] moon [above the trees|over the hills]. \"[I want to touch the moon|Is the moon lonely up there|How far away is the moon]?\" [said|asked] {name}. "
    "A{hn} {trait2} {helper} [named|called] {friend} heard {him}. \"[Come with me|I will show you something],\" said {friend}. They went to the [pond|lake|river], and there was the moon, [shining in the water|round and bright in the water]. "
    "{name} put a [hand|paw|foot] in the water and touched it. \"[Now I have touched the moon|It is cold and wet]!\" [said|laughed] {name}.",
]


def pronouns(female, suffix=""):
    words = ("she", "her", "her") if female else ("he", "his", "him")
    out = {"he" + suffix: words[0], "his" + suffix: words[1], "him" + suffix: words[2]}
    return out | {cap(k): cap(v) for k, v in out.items()}


GIRLS = set("Anna Clara Emma Grace Iris Kate Mia Olive Rosa Tess Ruby Lily Nina Ella Maya".split())


def article_n(word):
    return "n" if word[0] in "aeiou" else ""


def story(rng, kind=None):
    kind = kind or rng.choice(STORY_ANIMALS)
    helper, other, other2 = rng.sample([a for a in STORY_ANIMALS if a != kind], 3)
    name, friend = rng.sample(NAMES, 2)
    trait, trait2 = rng.sample(TRAITS, 2)
    season = rng.choice(SEASONS)
    food, food2 = rng.sample(FOODS, 2)
    slots = dict(kind=kind, helper=helper, other=other, other2=other2, name=name, friend=friend, trait=trait, trait2=trait2,
                 tn=article_n(trait), food=food, food2=food2, thing=rng.choice(THINGS), place=rng.choice(PLACES),
                 weather=expand(rng, WEATHER[season]),
                 day=rng.choice([f"One {season} day,", f"One day in {season},", "One day,", "One morning,",
                                 f"One {rng.choice(DAYS)},", "One afternoon,"]))
    slots |= pronouns(name in GIRLS) | pronouns(friend in GIRLS, "2")
    slots["Hisplace"] = f"{slots['His']} home was {slots['place']}."
    plot = rng.choice(PLOTS)
    # An article stands before {trait2} where the plot has it, else before {helper}.
    slots["hn"] = article_n(trait2 if "{hn} {trait2}" in plot else helper)
    if "{day} {weather}" in plot:
        plot = plot.replace("{day} {weather}", "{day} {lower}")
        slots["lower"] = slots["weather"][0].lower() + slots["weather"][1:]
    return expand(rng, rng.choice(OPENINGS) + " " + plot + " " + rng.choice(ENDINGS), **slots)


# -------------------------------------------------------------------------------------------------- descriptions

def describe_animal(rng, a, plain=False):
    name, sound, home, baby, food, legs = a
    it = rng.choice(["It", f"The {name}"]) if not plain else "It"
    parts = [f"{it} lives {home}.", f"It eats {food}.", f"It has {legs} legs."]
    if sound != "-":
        parts.append(f"{cap(an(name))} says {sound}.")
    if baby != "-":
        parts.append(f"A baby {name} is called {an(baby)}.")
    if not plain:
        rng.shuffle(parts)
        parts = parts[:rng.randint(2, len(parts))]
    return f"{cap(an(name))} is an animal. " + " ".join(parts)


def describe_me(rng):
    """First person: introductions, diaries and letters."""
    name, friend = rng.sample(NAMES, 2)
    job, season, animal = rng.choice(JOBS)[0], rng.choice(SEASONS), rng.choice(ANIMALS)
    x, c = rng.choice(CAPITALS)
    slots = dict(name=name, friend=friend, job=an(job), x=x, c=c, season=season, food=rng.choice(FOODS), thing=rng.choice(THINGS),
                 weather=expand(rng, WEATHER[season]), animal=an(animal[0]), eats=animal[4], day=rng.choice(DAYS),
                 colour=rng.choice(COLOURS)[1])
    return expand(rng, rng.choice([
        "[My name is {name}|I am {name}]. I am {job} and I live in {c}, the capital of {x}. [I have {animal}. It eats {eats}. |]"
        "[My favourite colour is {colour}. |]My [best |]friend is called {friend}.[ On {day} we go for a walk together.|]",
        "Today is {day}. {weather}. [I am|I was] in the garden with {friend}. We [ate|shared] {food} and talked about the {season}. "
        "[Then we went home.|It was a good day.|Tomorrow we will meet again.]",
        "Dear {friend}, [how are you? |I hope you are well. ]I am in {c}, the capital of {x}. {weather}. Yesterday I found {thing} and "
        "[thought of you|I want to give it to you]. [Please write soon|See you in {season}]. Your friend, {name}.",
        "It was a [cold|warm|quiet|fine] day in {season}. {weather}. {name} and {friend} sat [by the fire|under a tree|by the river] and ate "
        "{food}. [They told stories until the evening.|They were happy.|Then they walked home together.]",
        "Every {day}, {name} [visits|meets] {friend} in {c}. They [eat {food}|drink tea|go for a walk] and talk about [the weather|old times|the animals]. "
        "[They are good friends.|In the evening {name} goes home.]"]), **slots)


def later(rng, text):
    """The text from some later sentence on: a prompt need not be a beginning."""
    starts = [m.end() for m in re.finditer(r'[.!?]"? (?=[A-Z"])', text) if text[: m.end()].count('"') % 2 == 0]
    return text[rng.choice(starts[: max(1, len(starts) * 2 // 3)]):] if starts else text


def describe(rng):
    r = rng.randrange(12)
    if r >= 9:
        return describe_me(rng)
    if r == 0:
        return describe_animal(rng, rng.choice(ANIMALS))
    if r == 1:
        picks = rng.sample(CAPITALS, rng.randint(2, 4))
        return " ".join(expand(rng, "[The capital of {x} is {c}.|{c} is the capital of {x}.|{c} is in {x}.]", x=x, c=c)
                        for x, c in picks)
    if r == 2:
        s = rng.choice(SEASONS)
        w, h, wear = SEASON_FACTS[s]
        months = [m for i, m in enumerate(MONTHS) if SEASONS[((i - 2) % 12) // 3] == s]
        parts = [f"In {s} the weather is {w}.", f"In {s} {h}.", f"People wear {wear}.",
                 f"The months of {s} are {months[0]}, {months[1]} and {months[2]}.",
                 f"After {s} comes {SEASONS[(SEASONS.index(s) + 1) % 4]}."]
        return " ".join(rng.sample(parts, rng.randint(2, 5)))
    if r == 3:
        name, other = rng.sample(NAMES, 2)
        a, b = rng.randint(0, 12), rng.randint(0, 12)
        thing = rng.choice(["apples", "nuts", "books", "stones", "eggs", "pears", "flowers", "coins", "cakes"])
        he = "She" if name in GIRLS else "He"
        if rng.random() < 0.5:
            return f"{name} has {a} {thing}. {he} gets {b} more from {other}. {a} plus {b} is {a + b}. Now {name} has {a + b} {thing}."
        a, b = max(a, b), min(a, b)
        return f"{name} has {a} {thing}. {he} gives {b} to {other}. {a} minus {b} is {a - b}. Now {name} has {a - b} {thing}."
    if r == 4:
        return " ".join(expand(rng, "[{x} is for {f}.|People use {y} for {f}.|You need {y} for {f}.]", x=cap(x), y=x, f=f)
                        for x, f in rng.sample(TOOLS, rng.randint(2, 4)))
    if r == 5:
        return " ".join(expand(rng, "[{x} is {c}.|The colour of {y} is {c}.]", x=cap(x), y=x, c=c)
                        for x, c in rng.sample(COLOURS, rng.randint(2, 5)))
    if r == 6:
        return " ".join(f"The opposite of {x} is {y}." for x, y in rng.sample(OPPOSITES, rng.randint(2, 4)))
    if r == 7:
        name = rng.choice(NAMES)
        he, his = ("She", "her") if name in GIRLS else ("He", "his")
        job, does = rng.choice(JOBS)
        x, c = rng.choice(CAPITALS)
        fav, day = rng.choice(sorted({c for _, c in COLOURS})), rng.choice(DAYS)
        animal = rng.choice(ANIMALS)
        parts = [f"{he} lives in {c}, the capital of {x}.", f"{cap(his)} favourite colour is {fav}.",
                 f"{he} has {an(animal[0])}. It eats {animal[4]}.", f"On {day} {he.lower()} likes to [read a book|sing|go for a walk|cook soup|visit a friend].",
                 f"{he} was born in {rng.choice(MONTHS)}."]
        return expand(rng, f"{name} is {an(job)}. {cap(an(job))} {does}. " + " ".join(rng.sample(parts, rng.randint(2, 5))))
    start = rng.randrange(7)
    run = [DAYS[(start + i) % 7] for i in range(3)]
    return f"Today is {run[1]}. Yesterday was {run[0]}. Tomorrow will be {run[2]}."


def documents(seed, count):
    """(kind, chat messages or text); about two thirds of the documents are chats, a fifth stories."""
    rng = random.Random(seed)
    for _ in range(count):
        r = rng.random()
        if r < 0.66:
            yield "chat", chat(rng)
        else:
            text = story(rng) if r < 0.84 else describe(rng)
            yield "text", later(rng, text) if rng.random() < 0.25 else text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for kind, doc in documents(args.seed, args.count):
        if kind == "chat":
            print("\n".join(f"{role}: {text}" for role, text in doc), end="\n\n")
        else:
            print(doc, end="\n\n")


if __name__ == "__main__":
    main()
