"""Hard strings for tokenizers, the same for the same seed: text that people write and text that nobody would."""
import random
import sys
import unicodedata

HAND_MADE = [
    "", " ", "  ", "\n", "\r\n", "\t", "a", " a", "a ", "Hello world", "  Hello  world  ", "don't I'LL we'Ve 'S 's", "1234567890 3.14 1,000,000 1e-9",
    "def f(x):\n    return x + 1\n\n\nclass A(B):\n\tpass\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i]; // x\n}\r\n", "{\"a\": [1, 2.5, null], \"b\": \"\\u00e9\"}",
    "https://example.org/a/b?c=d&e=%20#f", "user@example.com", "C:\\Users\\x\\y.txt", "...!?!?---___===", "$x^2 + \\frac{1}{2}$",
    "你好世界", "日本語のテキスト、カタカナ", "한국어 텍스트", "Привет, мир!", "Γειά σου Κόσμε", "नमस्ते दुनिया क्षत्रिय", "สวัสดีชาวโลก", "مرحبا بالعالم ١٢٣", "שלום עולם", "ជំរាបសួរ", "မင်္ဂလာပါ", "ሰላም", "Բարեւ", "გამარჯობა",
    "e\u0301 e\u0301\u0301\u0301 A\u030a \u1e9b\u0323 \u0e33 \u0e01\u0e33", "ﬁ ﬂ ① ½ ＡＢＣ ﷺ ﷻ ㌔ ㎏ ｶﾞ", "İ ı ß ẞ ǅ ﬀ ŉ ΐ ς Σ",
    "😀 👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇫🇷🇩🇪 ☺️ ☹ 1️⃣ 🧑🏿‍🤝‍🧑🏻", "\u200b\u200c\u200d\u2060\ufeff", "\u00a0\u2003\u3000\u2028\u2029\u0085\u000b\u000c", "\u202e abc \u202c", "\u0000\u0001\u001f\u007f\u0080\u009f",
    "\ue000\uf8ff\ufffd\ufffe\uffff\U0010ffff", "▁▁a ▁b Ġ Ċ ĉ Ń ¡", "<s> </s> <unk> <pad> <0x0A> <|endoftext|> <|im_start|>user\nhi<|im_end|>", "[INST] x [/INST] <｜User｜>",
    "a" * 300, " " * 300, "\n" * 100, "ab" * 200, "1" * 200, "人" * 150, "😀" * 80, "\u0301" * 100, "!" * 200, "aA" * 100, "' " * 80, "\u200d" * 50, "\t \n " * 60, "a\u0301" * 80, "．" * 60,
]
EMOJI = ["😀", "👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇫🇷", "☺️", "1️⃣", "🧑🏿‍🤝‍🧑🏻", "❤️‍🔥", "\u200d", "\ufe0f", "🏽"]
WORDS = """the of and to in is that it was for on are with as his they at be this have from or one had by but not what all were we when your can
said there use an each which she do how their if will up other about out many then them these so some her would make like him into time has look two
more write go see number no way could people my than first water been call who oil its now find long down day did get come made may part don't it's
I'll we've they're you'd can't antidisestablishmentarianism internationalization GPU HTTP JSON camelCase snake_case PascalCaseWord x1 v2.0""".split()
SCRIPTS = [(0x370, 0x3ff), (0x400, 0x52f), (0x530, 0x58f), (0x590, 0x5ff), (0x600, 0x6ff), (0x700, 0x74f), (0x900, 0x97f), (0x980, 0x9ff), (0xa00, 0xa7f),
           (0xb80, 0xbff), (0xc00, 0xc7f), (0xd00, 0xd7f), (0xe00, 0xe7f), (0xe80, 0xeff), (0xf00, 0xfff), (0x1000, 0x109f), (0x10a0, 0x10ff), (0x1100, 0x11ff),
           (0x1200, 0x137f), (0x13a0, 0x13ff), (0x1780, 0x17ff), (0x1800, 0x18af), (0x1e00, 0x1eff), (0x1f00, 0x1fff), (0x2000, 0x206f), (0x2070, 0x209f),
           (0x20a0, 0x20cf), (0x2100, 0x214f), (0x2150, 0x218f), (0x2190, 0x21ff), (0x2200, 0x22ff), (0x2460, 0x24ff), (0x2500, 0x257f), (0x2e80, 0x2fdf),
           (0x3000, 0x303f), (0x3040, 0x30ff), (0x3130, 0x318f), (0x3200, 0x33ff), (0x3400, 0x4dbf), (0x4e00, 0x9fff), (0xa000, 0xa48f), (0xac00, 0xd7a3),
           (0xe000, 0xe0ff), (0xf900, 0xfaff), (0xfb00, 0xfdff), (0xfe00, 0xfe6f), (0xff00, 0xffef), (0x10000, 0x1007f), (0x10400, 0x1044f), (0x1d400, 0x1d7ff),
           (0x1f000, 0x1faff), (0x20000, 0x2a6df), (0x30000, 0x3134f), (0xe0000, 0xe01ef)]
CODE = ["def ", "return ", "if (x == y) {\n", "}\n", "    ", "\t", "\n", "self.", "->", "::", "!= ", "&& ", "\"str\\n\"", "// c\n", "# c\n", "0x1F", "1_000", "[i]", "();\n", "<div class=\"a\">", "</div>", "\r\n", "$x", "@a", "`q`", "${v}", " = ", ", "]


def by_category():
    categories = {}
    for code in range(sys.maxunicode + 1):
        if not 0xd800 <= code < 0xe000:
            categories.setdefault(unicodedata.category(chr(code)), []).append(code)
    return categories


class Generator:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.categories = by_category()
        self.kinds = [self.words, self.words, self.code, self.numbers, self.spaces, self.emoji, self.script, self.marks, self.category, self.any_characters,
                      self.runs, self.mixed, self.mixed, self.broken]

    def many(self, low, high):
        return range(self.rng.randint(low, high))

    def words(self):
        pick = self.rng.choice
        case = pick([str, str, str, str.upper, str.title])
        return "".join(case(pick(WORDS)) + pick([" ", " ", " ", ", ", ". ", "-", "  ", "\n", "", "'"]) for _ in self.many(1, 25))

    def code(self):
        return "".join(self.rng.choice(CODE + WORDS[:20]) for _ in self.many(1, 30))

    def numbers(self):
        pick = self.rng.choice
        return "".join(str(self.rng.randrange(10**self.rng.randint(1, 14))) + pick([" ", ".", ",", "", "-", "/", ":", "e", "٣", "½", "²"]) for _ in self.many(1, 10))

    def spaces(self):
        pick = self.rng.choice
        return "".join(pick([" ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2009", "\r"]) * self.rng.randint(1, 20) + pick(["", "x", "1", "!", "word"]) for _ in self.many(1, 8))

    def emoji(self):
        return "".join(self.rng.choice(EMOJI) if self.rng.random() < 0.7 else chr(self.rng.randint(0x1f300, 0x1faff)) + self.rng.choice(["", " ", "\u200d"]) for _ in self.many(1, 12))

    def script(self):
        low, high = self.rng.choice(SCRIPTS)
        return "".join(chr(self.rng.randint(low, high)) if self.rng.random() < 0.85 else " " for _ in self.many(1, 40))

    def marks(self):
        return "".join(self.rng.choice("aeionuAEO xनक한e ") + "".join(chr(self.rng.choice(self.categories[self.rng.choice(["Mn", "Mn", "Mc", "Me"])])) for _ in self.many(0, 3)) for _ in self.many(1, 15))

    def category(self):
        codes = self.categories[self.rng.choice(list(self.categories))]
        return "".join(chr(self.rng.choice(codes)) + self.rng.choice(["", "", " ", "a", "1"]) for _ in self.many(1, 15))

    def any_characters(self):
        return "".join(chr(code) for code in (self.rng.randrange(0x110000) for _ in self.many(1, 15)) if not 0xd800 <= code < 0xe000)

    def runs(self):
        return "".join(self.rng.choice(list("a1 \n.人́") + ["th", " a", "😀", "\r\n", "  "]) * self.rng.randint(1, 60) for _ in self.many(1, 3))

    def mixed(self):
        parts = [self.words, self.code, self.numbers, self.spaces, self.emoji, self.script, self.marks, self.category]
        return "".join(self.rng.choice(parts)()[:self.rng.randint(1, 20)] + self.rng.choice(["", " "]) for _ in self.many(2, 8)) + (self.rng.choice(HAND_MADE) if self.rng.random() < 0.2 else "")

    def broken(self):
        data = bytearray(self.mixed()[:40].encode())
        for _ in self.many(1, 4):
            at = self.rng.randrange(len(data) + 1)
            change = self.rng.random()
            if change < 0.4 and at < len(data):
                del data[at]
            elif change < 0.7:
                data.insert(at, self.rng.randrange(0x80, 0x100))
            else:
                data[at:at] = bytes(self.rng.choice([[0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xe4, 0xbd], [0xff, 0xfe]]))
        return bytes(data)

    def take(self, count):
        """`count` texts (str, or bytes that need not be UTF-8); the hand-made ones first."""
        yield from HAND_MADE[:count]
        for _ in range(count - len(HAND_MADE)):
            yield self.rng.choice(self.kinds)()
