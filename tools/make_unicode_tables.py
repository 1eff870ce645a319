#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_tables.inc: where the tokenizers package's Unicode data differ from this system's.

The package brings three versions of Unicode along (its regex library's, its normaliser's, that of its punctuation and
digit classes), and PCRE2 and utf8proc bring two more. Text is to give the same tokens, so the differences are listed.

Needs: pip install tokenizers, libutf8proc, and a Python whose unicodedata is as old as PCRE2's data (14.0).
Usage: tools/make_unicode_tables.py > src/tokenizer/unicode_tables.inc
"""
import ctypes
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

if unicodedata.unidata_version != "14.0.0":
    sys.exit(f"unicodedata is {unicodedata.unidata_version}; the table is relative to 14.0.0 (PCRE2 10.42)")

utf8proc = ctypes.CDLL("libutf8proc.so.2")
utf8proc.utf8proc_category_string.restype = ctypes.c_char_p
codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
every = "".join(map(chr, codes))


def category(code):
    return utf8proc.utf8proc_category_string(code).decode()


def removed_by(pre_tokenizer):
    """The codes that a splitter set to "removed" removes from the text of every code."""
    removed, done = set(), 0
    for _, (begin, end) in pre_tokenizer.pre_tokenize_str(every):
        removed.update(codes[done:begin])
        done = end
    removed.update(codes[done:])
    return removed


def ranges(found):
    """[(first, last, value)] of {code: value}."""
    out = []
    for code, value in sorted(found.items()):
        if out and out[-1][1] == code - 1 and out[-1][2] == value:
            out[-1][1] = code
        else:
            out.append([code, code, value])
    return out


def stand_ins():
    """Characters the package's regexes know and PCRE2 does not: each with an older one of its category and length."""
    older = {
        (3, "Mn"): 0x0900, (3, "Po"): 0x1360, (3, "Lu"): 0x1E00, (3, "Ll"): 0x1E01, (3, "So"): 0x2400,
        (3, "Mc"): 0x0903, (3, "Lo"): 0x0904, (3, "Lm"): 0x0971, (3, "Nd"): 0x0966,
        (4, "Lo"): 0x10280, (4, "Nd"): 0x104A0, (4, "Lm"): 0x10780, (4, "Lu"): 0x10400, (4, "Ll"): 0x10428,
        (4, "Mn"): 0x101FD, (4, "Mc"): 0x11000, (4, "Po"): 0x10100, (4, "Pd"): 0x10EAD, (4, "Sm"): 0x1D6C1,
        (4, "So"): 0x10137, (4, "Cf"): 0x110BD, (4, "No"): 0x10107, (4, "Nl"): 0x10140,
    }
    names = sorted({category(code) for code in codes} - {"Cs"})
    theirs = {code: name for name in names for code in removed_by(pre_tokenizers.Split(Regex(rf"\p{{{name}}}"), "removed"))}
    han = removed_by(pre_tokenizers.Split(Regex(r"\p{Han}"), "removed"))
    found = {}
    for code in codes:
        name = theirs[code]
        if name != unicodedata.category(chr(code)):
            ideograph = code in han and name == "Lo"
            found[code] = 0x20000 if ideograph else older[(len(chr(code).encode()), name)]
    return ranges(found)


def unknown_to_normalizer():
    """Characters that the package's normal forms leave alone though utf8proc would not."""
    form = {name: getattr(normalizers, name)() for name in ("NFC", "NFD", "NFKC", "NFKD")}
    options = {"NFC": 1 << 1 | 1 << 3, "NFD": 1 << 1 | 1 << 4, "NFKC": 1 << 1 | 1 << 3 | 1 << 2, "NFKD": 1 << 1 | 1 << 4 | 1 << 2}
    utf8proc.utf8proc_map.restype = ctypes.c_ssize_t
    libc = ctypes.CDLL(None)

    def ours(text, name):
        out = ctypes.c_void_p()
        data = text.encode()
        size = utf8proc.utf8proc_map(data, len(data), ctypes.byref(out), options[name])
        result = ctypes.string_at(out, size).decode()
        libc.free(out)
        return result

    found = {}
    for code in codes:
        if code == 0:
            continue
        char = chr(code)
        texts = [("NFC", char), ("NFD", char), ("NFKC", char), ("NFKD", char)]
        texts += [("NFD", "a\u0301" + char), ("NFD", "a" + char + "\u0316")]  # shows the combining class
        for name, text in texts:
            if form[name].normalize_str(text) != ours(text, name):
                if form[name].normalize_str(text) != text:
                    sys.exit(f"U+{code:04X} changes in both, but differently")
                found[code] = 0
    return ranges(found)


def class_differences(theirs, initial, ascii_members=""):
    ours = {code for code in codes if category(code).startswith(initial)} | set(map(ord, ascii_members))
    return ranges({code: int(code in theirs) for code in theirs ^ ours})


def digits():
    """Digits makes a piece of each digit, so it must be asked for pieces."""
    pieces = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str("a".join(map(chr, codes)))
    return {codes[begin // 2] for _, (begin, end) in pieces if end - begin == 1 and begin % 2 == 0}


def table(kind, name, comment, rows, with_value=True):
    print(f"\n// {comment}\nconstexpr {kind} {name}[] = {{")
    for first, last, value in rows:
        print(f"    {{0x{first:x}, 0x{last:x}" + (f", 0x{value:x}}}," if with_value else "},"))
    print("};")


print(f"// Made by tools/make_unicode_tables.py with tokenizers {tokenizers.__version__}; do not edit.")
table("Mapped", "stand_ins", "first, last, the character that regexes see instead", stand_ins())
table("Range", "no_normalization", "Normal forms leave these alone.", unknown_to_normalizer(), False)
ascii_punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
table("Mapped", "punctuation_differences", "first, last, whether it is punctuation",
      class_differences(removed_by(pre_tokenizers.Punctuation("removed")), "P", ascii_punctuation))
table("Mapped", "numeric_differences", "first, last, whether it is numeric", class_differences(digits(), "N"))
