#!/usr/bin/env python3
"""Writes tests/sampling/cases.json: what sampling has to give on fixed logits, by plain definitions in numpy.

The order is that of generate() in transformers 5.17 (_get_logits_processor; logits_process.py): logit bias, repetition
penalty over prompt and output, then presence and frequency penalties (which transformers has not: OpenAI's definition,
over the output), temperature, top-k, top-p, min-p. Log-probabilities are the model's own: of the logits as they come.
Everything is float64 on logits that float32 holds exactly. Where two tokens are as likely, the lower one counts as better.
A case whose result hangs on rounding (a sum or a draw within 1e-6 of its border) is drawn anew.

Each case: row (into "logits"), params, prompt, output, kept (tokens that may be drawn), probs (of those, as they are
drawn), draws [[seed, sample, token], ...], best (the number of top log-probabilities), top [[token, logprob], ...].

Needs: pip install numpy. The output is the same on every run.
Usage: tools/make_sampling_cases.py
"""
import json
import pathlib

import numpy as np

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/sampling/cases.json"
CLOSE = 1e-6
NEGLIGIBLE = 1e-12  # left out of "kept": float32 may or may not hold it


class HangsOnRounding(Exception):
    pass


def philox(seed, position, sample):
    """The first 53 bits of Philox4x32-10 (Salmon et al. 2011) as a number in [0, 1)."""
    mask = 0xFFFFFFFF
    counter = [position & mask, position >> 32, 0, sample]
    key = [seed & mask, seed >> 32]
    for _ in range(10):
        even, odd = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(odd >> 32) ^ counter[1] ^ key[0], odd & mask, (even >> 32) ^ counter[3] ^ key[1], even & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return (((counter[0] << 32) | counter[1]) >> 11) * 2.0**-53


def softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def bias_and_penalties(logits, params, prompt, output):
    scores = logits.copy()
    for token, bias in params.get("logit_bias", []):
        scores[token] += bias
    repetition = params.get("repetition_penalty", 1.0)
    for token in set(prompt) | set(output):
        scores[token] = scores[token] / repetition if scores[token] > 0 else scores[token] * repetition
    for token in set(output):
        scores[token] -= params.get("presence_penalty", 0.0) + output.count(token) * params.get("frequency_penalty", 0.0)
    return scores


def top_k(scores, k):
    """Everything at least as good as the k-th best: ties stay, as in TopKLogitsWarper."""
    if not 0 < k < len(scores):
        return scores
    least = np.sort(scores)[-k]
    # float32 rounds penalties: two that are equal in one and not in the other are no test of anything
    if np.any((scores != least) & np.isclose(scores, least, rtol=CLOSE, atol=0)):
        raise HangsOnRounding
    return np.where(scores < least, -np.inf, scores)


def top_p(scores, p):
    """TopPLogitsWarper read from the best down: a token stays if those before it have less than p together."""
    if p >= 1:
        return scores
    probs = softmax(scores)
    order = np.lexsort((np.arange(len(probs)), -probs))
    before = np.concatenate([[0.0], np.cumsum(probs[order])[:-1]])
    if np.any(np.abs(before[1:] - p) < CLOSE):
        raise HangsOnRounding
    kept = scores.copy()
    kept[order[before >= p]] = -np.inf
    return kept


def min_p(scores, p):
    probs = softmax(scores)
    border = p * probs.max()
    if p < 1 and np.any((probs > 0) & (np.abs(probs - border) < CLOSE * border)):
        raise HangsOnRounding
    return np.where(probs < border, -np.inf, scores)


def evaluate(logits, params, prompt, output, seeds):
    scores = bias_and_penalties(logits, params, prompt, output)
    if params["temperature"] == 0:
        best = scores.max()
        if np.any((scores != best) & np.isclose(scores, best, rtol=CLOSE, atol=0)):
            raise HangsOnRounding
        token = int(np.argmax(scores))
        kept, probs, draws = [token], [1.0], [[seed, sample, token] for seed, sample in seeds]
    else:
        scores = scores / params["temperature"]
        scores = min_p(top_p(top_k(scores, params.get("top_k", 0)), params.get("top_p", 1.0)), params.get("min_p", 0.0))
        all_probs = softmax(scores)
        kept = [int(token) for token in np.flatnonzero(all_probs > NEGLIGIBLE)]
        probs = all_probs[kept]
        ends = np.cumsum(probs)
        draws = []
        for seed, sample in seeds:
            uniform = philox(seed, len(output), sample)
            if np.any(np.abs(ends[:-1] - uniform) < CLOSE):
                raise HangsOnRounding
            draws.append([seed, sample, kept[int(np.searchsorted(ends[:-1], uniform, side="right"))]])
    best = params.get("logprobs")
    log_probs = logits - (logits.max() + np.log(np.exp(logits - logits.max()).sum()))
    order = np.lexsort((np.arange(len(logits)), -logits))[:best or 0]
    return dict(kept=kept, probs=[float(f"{p:.8g}") for p in probs], draws=draws,
                chosen=[float(f"{log_probs[token]:.8g}") for _, _, token in draws],
                top=[[int(token), float(f"{log_probs[token]:.8g}")] for token in order])


def rows(rng):
    yield rng.normal(0, 3, 12)
    yield rng.normal(0, 1, 40)
    yield rng.normal(-5, 6, 40)
    yield rng.integers(-3, 4, 30) / 2.0  # many ties
    yield np.zeros(16)
    spread = rng.normal(0, 2, 200)
    spread[[3, 150]] = [14, 13.5]
    yield spread
    masked = rng.normal(0, 2, 24)
    masked[[1, 5, 23]] = -np.inf
    yield masked


def random_params(rng, vocab):
    maybe = lambda make, share=0.5: make() if rng.random() < share else None
    round3 = lambda value: float(np.float32(round(float(value), 3)))  # what the test reads is what is computed with
    wanted = dict(
        temperature=maybe(lambda: round3(rng.choice([0.0, 0.2, 0.7, 1.5, 3.0])), 0.7),
        top_k=maybe(lambda: int(rng.integers(1, vocab + 3))),
        top_p=maybe(lambda: round3(rng.uniform(0.02, 0.99))),
        min_p=maybe(lambda: round3(rng.choice([0.01, 0.05, 0.2, 0.7, 1.0])), 0.4),
        repetition_penalty=maybe(lambda: round3(rng.uniform(0.6, 2.0))),
        presence_penalty=maybe(lambda: round3(rng.uniform(-1.5, 2.0)), 0.4),
        frequency_penalty=maybe(lambda: round3(rng.uniform(-0.5, 1.0)), 0.4),
        logit_bias=maybe(lambda: [[int(t), round3(rng.uniform(-8, 8))] for t in rng.choice(vocab, 3, replace=False)], 0.3),
        logprobs=maybe(lambda: int(rng.integers(0, 8)), 0.5),
    )
    params = {name: value for name, value in wanted.items() if value is not None}
    params.setdefault("temperature", 1.0)
    return params


def main():
    rng = np.random.default_rng(3)
    logits = [np.float32(np.round(row, 3)).astype(np.float64) for row in rows(rng)]
    cases = []
    while len(cases) < 280:
        row = len(cases) % len(logits)
        vocab = len(logits[row])
        params = random_params(rng, vocab)
        prompt = [int(t) for t in rng.integers(0, vocab, rng.integers(0, 8))]
        output = [int(t) for t in rng.integers(0, vocab, rng.integers(0, 8))]
        seeds = [(0, 0), (int(rng.integers(0, 2**63)), int(rng.integers(0, 2**20))), (int(rng.integers(0, 99)), 1)]
        try:
            cases.append(dict(row=row, params=params, prompt=prompt, output=output) |
                         evaluate(logits[row], params, prompt, output, seeds))
        except HangsOnRounding:
            continue
    OUT.parent.mkdir(parents=True, exist_ok=True)
    plain = lambda value: "-inf" if value == -np.inf else float(f"{value:.6g}")
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    OUT.write_text('{"logits":' + json.dumps([[plain(x) for x in row] for row in logits], separators=(",", ":")) +
                   ',\n"cases":[\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
