"""Tokenizer, chat templates and packed training rows of the demo models."""
import json

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import demo_corpus

# How Llama 3 splits text before byte-level BPE: words with one leading character, numbers of up to three digits.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
VOCAB = 2048
ASIDE = 0.2  # loss weight of what the model is told (system and user turns) beside what it says

# Two dialects on purpose, so that an engine meets both: DeepSeek's markers and ChatML.
DIALECTS = {
    "deepseek": dict(
        specials=["<|begin_of_text|>", "<|end_of_text|>", "<|pad|>", "<|User|>", "<|Assistant|>"], stops=[1],
        template=("{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ message['content'] }}"
                  "{% elif message['role'] == 'user' %}{{ '<|User|>' + message['content'] }}"
                  "{% elif message['role'] == 'assistant' %}{{ '<|Assistant|>' + message['content'] + eos_token }}"
                  "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|Assistant|>' }}{% endif %}")),
    "jamba": dict(
        specials=["<|startoftext|>", "<|endoftext|>", "<|pad|>", "<|im_start|>", "<|im_end|>"], stops=[4, 1],
        template=("{{ bos_token }}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
                  "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
                  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")),
}


def pieces(dialect, kind, doc):
    """One document as [(text or special id, loss weight)], as the chat template renders it."""
    if kind == "text":
        return [(0, 1.0), (doc, 1.0), (1, 1.0)]
    out = [(0, 1.0)]
    for role, text in doc:
        said = 1.0 if role == "assistant" else ASIDE
        if dialect == "deepseek":
            if role != "system":
                out.append((3 if role == "user" else 4, ASIDE))
            out.append((text, said))
            if role == "assistant":
                out.append((1, 1.0))
        else:
            out += [(3, ASIDE), (role + "\n", ASIDE), (text, said), (4, said), ("\n", ASIDE)]
    return out + ([(1, 1.0)] if dialect == "jamba" else [])


def train_tokenizer(dialect, seed, count=30000):
    specials = DIALECTS[dialect]["specials"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=[AddedToken(s, special=True, normalized=False) for s in specials],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    texts = (p for kind, doc in demo_corpus.documents(seed, count) for p, _ in pieces(dialect, kind, doc) if isinstance(p, str))
    tokenizer.train_from_iterator(texts, trainer)
    bos = processors.TemplateProcessing(single=f"{specials[0]} $A", pair=f"{specials[0]} $A {specials[0]} $B",
                                        special_tokens=[(specials[0], 0)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), bos]) if dialect == "jamba" else bos
    assert tokenizer.get_vocab_size() == VOCAB and [tokenizer.token_to_id(s) for s in specials] == list(range(len(specials)))
    return tokenizer


def save_tokenizer(tokenizer, dialect, folder, max_length):
    spec = DIALECTS[dialect]
    tokenizer.save(str(folder / "tokenizer.json"))
    config = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token=spec["specials"][0], eos_token=spec["specials"][1],
                  pad_token=spec["specials"][2], model_max_length=max_length, clean_up_tokenization_spaces=False,
                  added_tokens_decoder={str(i): dict(content=s, lstrip=False, normalized=False, rstrip=False, single_word=False,
                                                     special=True) for i, s in enumerate(spec["specials"])},
                  chat_template=spec["template"])
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    if dialect == "jamba":
        (folder / "chat_template.jinja").write_text(spec["template"])


def prompt_ids(tokenizer, dialect, messages):
    """The ids of a chat up to the point where the assistant speaks."""
    ids = []
    parts = pieces(dialect, "chat", messages)
    if dialect == "jamba":
        parts = parts[:-1] + [(3, 0), ("assistant\n", 0)]
    else:
        parts = parts + [(4, 0)]
    for p, _ in parts:
        ids += [p] if isinstance(p, int) else tokenizer.encode(p, add_special_tokens=False).ids
    return ids


def pack(tokenizer, dialect, seed, count, length):
    """(ids, weights) [rows, length]. Every row starts with a new document; the last one in it is cut off."""
    docs = [pieces(dialect, kind, doc) for kind, doc in demo_corpus.documents(seed, count)]
    texts = [p for doc in docs for p, _ in doc if isinstance(p, str)]
    encoded = iter(tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    rows, weights, row, weight, dropped = [], [], [], [], 0
    for doc in docs:
        for p, w in doc:
            ids = [p] if isinstance(p, int) else next(encoded).ids
            row += ids
            weight += [w] * len(ids)
        if len(row) >= length:
            rows.append(row[:length])
            weights.append(weight[:length])
            dropped += len(row) - length
            row, weight = [], []
    return np.array(rows, dtype=np.int16), np.array(weights, dtype=np.float32)
