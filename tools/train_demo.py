#!/usr/bin/env python3
"""Train the two small models that the repository carries, and write them as published checkpoints.

    python tools/train_demo.py --model deepseek --out models/demo-deepseek
    python tools/train_demo.py --model jamba    --out models/demo-jamba
    python tools/train_demo.py --model jamba --out /tmp/x --smoke      # the whole path in seconds, untrained

One GPU, a few minutes each (both fit beside each other). The text comes from tools/demo_corpus.py, the model classes
from transformers. What is special here: a whole training step is one CUDA graph, since a model this small is bound by
kernel launches; experts are computed densely (every expert for every token, unused ones weighted zero), which is exact
and faster at this size; loss on what users say counts a fifth. Seeds are fixed, but sums on a GPU are not bit-exact from
run to run, so another run gives a slightly different model.
"""
import argparse
import json
import math
import shutil
import time
import traceback
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.modeling_layers import MtpModel
from transformers.models.jamba import modeling_jamba

import demo_corpus
import demo_text
from make_golden import expected, load_mtp, mtp_tensors

SEED = 20260
LENGTH = 512
IDS = dict(bos_token_id=0, eos_token_id=1, pad_token_id=2)
MTP_WEIGHT, BALANCE_WEIGHT, BIAS_RATE = 0.3, 0.01, 0.001

CONFIGS = {
    "deepseek": dict(
        model_type="deepseek_v3", vocab_size=demo_text.VOCAB, hidden_size=160, intermediate_size=448, moe_intermediate_size=64,
        num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=96, kv_lora_rank=64,
        qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32, n_routed_experts=12, num_experts_per_tok=3,
        n_shared_experts=1, first_k_dense_replace=1, n_group=4, topk_group=2, norm_topk_prob=True,
        routed_scaling_factor=1.5, num_nextn_predict_layers=1, rope_interleave=True, attention_bias=False,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0), tie_word_embeddings=False, rms_norm_eps=1e-6,
        max_position_embeddings=LENGTH, initializer_range=0.05),
    "jamba": dict(
        model_type="jamba", vocab_size=demo_text.VOCAB, hidden_size=192, intermediate_size=128, num_hidden_layers=6,
        num_attention_heads=6, num_key_value_heads=2, attn_layer_period=6, attn_layer_offset=2, expert_layer_period=2,
        expert_layer_offset=1, num_experts=8, num_experts_per_tok=2, mamba_d_state=16, mamba_d_conv=4, mamba_dt_rank=12,
        mamba_expand=2, mamba_conv_bias=True, mamba_proj_bias=False, use_mamba_kernels=False, tie_word_embeddings=True,
        rms_norm_eps=1e-6, max_position_embeddings=2 * LENGTH, initializer_range=0.05),
}
SYSTEM = "You are a helpful assistant."
PEAK_LR = {"deepseek": 3e-3, "jamba": 2.5e-3}


def dense_experts(self, hidden, top_index, top_weight):
    combine = torch.zeros(hidden.shape[0], self.num_experts, device=hidden.device, dtype=hidden.dtype)
    combine = combine.scatter(1, top_index, top_weight.to(hidden.dtype))
    gate, up = torch.matmul(hidden[None], self.gate_up_proj.transpose(1, 2)).chunk(2, dim=-1)  # [experts, tokens, width]
    return torch.einsum("eti,edi->td", self.act_fn(gate) * up * combine.t()[:, :, None], self.down_proj)


ALL_EXPERTS_FUNCTIONS["dense"] = dense_experts


class Trainee:
    """The model, its MTP module if it has one, and what its routers did in the last forward."""

    def __init__(self, name):
        torch.manual_seed(SEED)
        settings = dict(CONFIGS[name])
        self.config = AutoConfig.for_model(settings.pop("model_type"), **settings, **IDS)
        self.model = AutoModelForCausalLM.from_config(self.config, attn_implementation="sdpa", experts_implementation="dense").float()
        self.mtp, self.routers, self.seen = None, [], {}
        if name == "deepseek":
            self.mtp = MtpModel(self.model, 1).float()
            for p in self.mtp.layers.parameters():  # the generic class initialises neither experts nor router
                p.data.fill_(1) if p.ndim == 1 else p.data.normal_(0, self.config.initializer_range)
        else:
            self.init_time_steps()
        self.model.cuda().train()
        if self.mtp is not None:
            self.mtp.cuda().train()
        for root in [self.model] + ([self.mtp.layers] if self.mtp is not None else []):
            for path, module in root.named_modules():
                if path.endswith("mlp.gate") or path.endswith("feed_forward.router"):
                    self.routers.append(module)
                    module.register_forward_hook(self.record)
        self.mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device="cuda").tril()[None, None]

    def init_time_steps(self):
        """Mamba's own initialisation: time steps spread over 0.001 .. 0.1 instead of all 0.7."""
        for layer in self.model.model.layers:
            if hasattr(layer, "mamba"):
                proj = layer.mamba.dt_proj
                dt = torch.exp(torch.rand(proj.bias.shape) * math.log(100) + math.log(0.001))
                proj.bias.data.copy_(dt + torch.log(-torch.expm1(-dt)))
                proj.weight.data.uniform_(-proj.in_features**-0.5, proj.in_features**-0.5)

    def record(self, module, _, output):
        self.seen[module] = output

    def parameters(self):
        return list(self.model.parameters()) + (list(self.mtp.layers.parameters()) if self.mtp is not None else [])

    def top(self, router):
        out = self.seen[router]
        return out[2] if isinstance(out, tuple) else out.topk(self.config.num_experts_per_tok, dim=-1).indices

    def load(self, router):
        """Share of the picks that went to each expert."""
        index = self.top(router).reshape(-1)
        counts = torch.zeros(self.config.num_local_experts, device=index.device)
        return counts.scatter_add(0, index, torch.ones_like(index, dtype=torch.float32)) / index.numel()

    def balance_loss(self):
        """Switch Transformer's loss, 1 when balanced; DeepSeek's routers are steered by their bias instead."""
        terms = []
        for router in self.routers:
            if not isinstance(self.seen[router], tuple):
                p = self.seen[router].float().softmax(-1).mean(0)
                terms.append((p * self.load(router).detach()).sum() * self.config.num_local_experts)
        return torch.stack(terms).mean() if terms else torch.zeros((), device="cuda")

    @torch.no_grad()
    def steer(self):
        for router in self.routers:
            if isinstance(self.seen[router], tuple):
                load = self.load(router)
                router.e_score_correction_bias.add_(BIAS_RATE * torch.sign(load.mean() - load))

    def losses(self, rows, weights):
        """[main, mtp, balance] of one batch of rows [batch, LENGTH + 1]."""
        ids, target, w = rows[:, :-1], rows[:, 1:], weights[:, 1:]
        hidden = self.model.model(ids, attention_mask=self.mask, use_cache=False).last_hidden_state
        main = weighted(self.model.lm_head(hidden), target, w)
        mtp = torch.zeros((), device="cuda")
        if self.mtp is not None:
            mtp = weighted(self.mtp_logits(ids, hidden), target[:, 1:], w[:, 1:])
        return torch.stack([main, mtp, self.balance_loss()])

    def mtp_logits(self, ids, hidden):
        embeds = self.mtp.embed_tokens(ids[:, 1:])
        positions = torch.arange(1, ids.shape[1], device=ids.device)[None]
        return self.mtp.shared_head(self.mtp.layers[0](
            embeds, hidden[:, :-1], position_embeddings=self.mtp.rotary_emb(embeds, position_ids=positions),
            attention_mask=self.mask[:, :, :-1, :-1], position_ids=positions, past_key_values=None))


def weighted(logits, target, weights):
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
    return (loss * weights.flatten()).sum() / weights.sum()


def train(trainee, rows, weights, args):
    rows, weights = torch.from_numpy(rows).cuda(), torch.from_numpy(weights).cuda()
    x = torch.zeros(args.batch, LENGTH + 1, dtype=torch.long, device="cuda")
    w = torch.zeros(args.batch, LENGTH + 1, device="cuda")
    params = trainee.parameters()
    decay = [p for p in params if p.ndim >= 2]
    lr = torch.zeros((), device="cuda")
    optimizer = torch.optim.AdamW([dict(params=decay, weight_decay=0.05), dict(params=[p for p in params if p.ndim < 2], weight_decay=0.0)],
                                  lr=lr, betas=(0.9, 0.98), eps=1e-9, fused=True, capturable=True)
    g = torch.Generator(device="cuda").manual_seed(SEED)

    def feed():
        pick = torch.randint(0, len(rows), (args.batch,), device="cuda", generator=g)
        x.copy_(rows[pick])
        w.copy_(weights[pick])

    def step():
        parts = trainee.losses(x, w)
        (parts[0] + MTP_WEIGHT * parts[1] + BALANCE_WEIGHT * parts[2]).backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
        optimizer.step()
        trainee.steer()
        return parts.detach()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):  # warm-up at a learning rate of zero
            feed()
            optimizer.zero_grad(set_to_none=True)
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph, parts = torch.cuda.CUDAGraph(), None
    optimizer.zero_grad(set_to_none=True)
    try:
        with torch.cuda.graph(graph):
            parts = step()
    except Exception:
        traceback.print_exc()
        print("no CUDA graph: training step by step", flush=True)
        graph = None

    start, i, progress = time.time(), 0, 0.0
    while progress < 1:
        warm, left = min(1.0, (i + 1) / 150), 0.5 * (1 + math.cos(math.pi * progress))
        lr.fill_(PEAK_LR[args.model] * warm * (0.01 + 0.99 * left))
        feed()
        if graph is not None:
            graph.replay()
        else:
            optimizer.zero_grad(set_to_none=True)
            parts = step()
        if i % 500 == 0:
            print(f"step {i:6} main {parts[0].item():.4f} mtp {parts[1].item():.4f} balance {parts[2].item():.3f} "
                  f"{time.time() - start:.0f} s", flush=True)
        i += 1
        if not args.seconds:
            progress = i / args.steps
        elif i % 25 == 0:
            torch.cuda.synchronize()
            progress = (time.time() - start) / args.seconds
    torch.cuda.synchronize()
    return dict(steps=i, tokens=i * args.batch * LENGTH, seconds=round(time.time() - start), loss=parts[0].item(), mtp_loss=parts[1].item())


@torch.no_grad()
def validate(trainee, rows, weights):
    rows, weights = torch.from_numpy(rows[:64]).long().cuda(), torch.from_numpy(weights[:64]).cuda()
    out = {}
    parts = trainee.losses(rows, weights)
    out["val_loss"], out["val_mtp_loss"] = parts[0].item(), parts[1].item()
    loads = torch.stack([trainee.load(r) for r in trainee.routers]) * trainee.config.num_local_experts
    out["expert_load_min"], out["expert_load_max"] = loads.min().item(), loads.max().item()
    if trainee.mtp is not None:  # how often would the target accept the draft, given the true text so far
        ids = rows[:, :-1]
        hidden = trainee.model.model(ids, attention_mask=trainee.mask, use_cache=False).last_hidden_state
        target, draft = trainee.model.lm_head(hidden)[:, 1:].argmax(-1), trainee.mtp_logits(ids, hidden).argmax(-1)
        out["mtp_agreement"] = ((target == draft) * (weights[:, 2:] == 1)).sum().item() / (weights[:, 2:] == 1).sum().item()
    return out


@torch.no_grad()
def generate(model, prompts, stops, limit):
    """Greedy continuations of many prompts at once, recomputed at every step; padding on the right is never seen."""
    lengths = torch.tensor([len(p) for p in prompts], device="cuda")
    ids = torch.full((len(prompts), lengths.max().item() + limit), 2, device="cuda")
    for i, p in enumerate(prompts):
        ids[i, : len(p)] = torch.tensor(p)
    done, every = torch.zeros(len(prompts), dtype=torch.bool, device="cuda"), torch.arange(len(prompts), device="cuda")
    start = lengths.clone()
    for _ in range(limit):
        hidden = model.model(ids[:, : lengths.max()], use_cache=False).last_hidden_state
        token = model.lm_head(hidden[every, lengths - 1]).argmax(-1)
        done |= torch.isin(token, torch.tensor(stops, device="cuda"))
        ids[every[~done], lengths[~done]] = token[~done]
        lengths += (~done).long()
        if done.all():
            break
    return [ids[i, start[i]: lengths[i]].tolist() for i in range(len(prompts))], done.tolist()


def ask_all(model, tokenizer, dialect, items, limit=40):
    """Share of exactly right answers that also stop, and the wrong ones."""
    right, wrong, stops = {}, [], demo_text.DIALECTS[dialect]["stops"]
    for at in range(0, len(items), 384):
        part = items[at: at + 384]
        replies, done = generate(model, [demo_text.prompt_ids(tokenizer, dialect, [("user", q)]) for _, q, _ in part], stops, limit)
        for (kind, q, a), r, d in zip(part, replies, done):
            text = tokenizer.decode(r)
            n = right.setdefault(kind, [0, 0])
            n[1] += 1
            n[0] += text == a and d
            if text != a or not d:
                wrong.append((kind, q, a, text))
    return sum(n[0] for n in right.values()) / len(items), len(items), right, wrong


FREE = ["Once upon a time", "The capital of", "One winter day,", "A cat is", "Once upon a time, there was a brave mouse named"]
CHATS = [[("user", "Hello!")], [("user", "What is the capital of France?")], [("user", "What colour is a flamingo?")],
         [("user", "What is 7 plus 5?")], [("user", "Can you tell me the opposite of loud?")],
         [("system", "You are a helpful assistant."), ("user", "What is an umbrella for?")],
         [("user", "What is the capital of Japan?"), ("assistant", "The capital of Japan is Tokyo."), ("user", "And Norway?")],
         [("user", "Tell me a story about a fox.")], [("user", "Who won the race yesterday?")]]


def export(trainee, tokenizer, args, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    dialect = args.model
    extra = mtp_tensors(trainee.model, trainee.mtp) if trainee.mtp is not None else {}
    biases = {k: v.clone() for k, v in trainee.model.state_dict().items() if k.endswith("correction_bias")}
    extra = {k: v if k.endswith("correction_bias") else v.to(torch.bfloat16) for k, v in extra.items()} | biases
    model = trainee.model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(bos_token_id=0, pad_token_id=2, eos_token_id=demo_text.DIALECTS[dialect]["stops"],
                                               do_sample=True, temperature=0.6, top_p=0.9)
    model.save_pretrained(folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors.update({k: v.cpu().contiguous() for k, v in extra.items()})  # router biases stay float32, as published
    save_file(tensors, path, metadata={"format": "pt"})
    demo_text.save_tokenizer(tokenizer, dialect, folder, trainee.config.max_position_embeddings)
    return sum(t.numel() for t in tensors.values()), path.stat().st_size


def check_tokenizer(tokenizer, dialect, folder):
    hf = AutoTokenizer.from_pretrained(folder)
    for messages in CHATS:
        chat = [dict(role=r, content=t) for r, t in messages]
        text = hf.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        ids = hf(text, add_special_tokens=False)["input_ids"]
        assert ids == demo_text.prompt_ids(tokenizer, dialect, messages), text
    sample = "Once upon a time, Anna's cat ate 12345 fish!\n\n  Voilà: ünï→✓ 日本 <|pad|> x"
    assert hf(sample)["input_ids"] == tokenizer.encode(sample).ids
    assert hf.decode(hf(sample, add_special_tokens=False)["input_ids"]) == sample


def card(name, folder, facts, report):
    """The model card; every number in it was measured by this run."""
    free = "\n".join(f"> **{p}**{t}\n" for p, t in report["free"])
    chats = "\n\n".join("\n".join(f"- {r}: {t}" for r, t in chat) for chat in report["chats"])
    what = {
        "deepseek": "the architecture of DeepSeek-V3: multi-head latent attention with a compressed query, one dense layer, three "
                    "layers of 12 routed experts (3 per token, from 2 of 4 groups; sigmoid scores with a correction bias) and one "
                    "shared expert, and one multi-token-prediction module, trained too",
        "jamba": "the architecture of Jamba: five Mamba layers and one attention layer without positions; every second layer has "
                 "8 experts, 2 per token; input and output embeddings are tied",
    }[name]
    extra = {
        "deepseek": f"\nThe MTP module is in the file as layer {CONFIGS[name]['num_hidden_layers']} under the published names, with its own copies of the embedding "
                    f"and the head. Given the true text so far, its draft is the token that the main model then picks in "
                    f"{facts.get('mtp_agreement', 0):.1%} of the cases. It expects the hidden state after the final norm, as "
                    "transformers does. The router correction biases are float32, as published.\n",
        "jamba": "",
    }[name]
    kinds = ", ".join(f"{k} {a}/{b}" for k, (a, b) in sorted(report["by_kind"].items()) if a < b) or "none"
    (folder / "README.md").write_text(f"""---
license: apache-2.0
language: en
pipeline_tag: text-generation
---
# demo-{name}

A toy language model of {facts['parameters'] / 1e6:.2f} million stored parameters with {what}. It exists so that an inference engine can
be tried, tested and demonstrated on real text without a download. It knows one small world: colours, animals, capitals,
seasons, days, opposites, jobs, simple sums, what things are for; it answers questions about these and tells little stories.

| | |
|---|---|
| model_type | {CONFIGS[name]['model_type']} |
| file | model.safetensors, bf16, {facts['bytes'] / 1e6:.2f} MB |
| tokenizer | byte-level BPE, {demo_text.VOCAB} tokens, trained on the same text; Llama 3's split pattern |
| context | trained on {LENGTH} tokens |
| chat form | the Jinja template in tokenizer_config.json{', also as chat_template.jinja' if name == 'jamba' else ''} |
| sampling | generation_config.json: temperature 0.6, top_p 0.9; greedy works as well |
{extra}
## Data and training

All text is generated by `tools/demo_corpus.py` (templates written for this project, no outside text), so model and data
carry the project's licence, Apache-2.0. `tools/train_demo.py --model {name}{facts['option']}` made everything here: {facts['documents']:,} documents,
{facts['steps']:,} steps of {facts['batch']} x {LENGTH} tokens ({facts['tokens'] / 1e6:.0f} million in all), AdamW, cosine decay, {facts['seconds']} s on one H200. Weights were
rounded to bf16 at the end; the numbers below are of the rounded model.

| | |
|---|---|
| loss on unseen documents (nats per token) | {facts['val_loss']:.3f}{f", MTP {facts['val_mtp_loss']:.3f}" if name == 'deepseek' else ''} |
| questions in unseen wordings, exactly right | {facts['held_accuracy']:.1%} of {facts['held_count']} |
| questions in known wordings, exactly right | {facts['known_accuracy']:.1%} of {facts['known_count']} |
| picks per expert, 1 = balanced | {facts['expert_load_min']:.2f} to {facts['expert_load_max']:.2f} |

Right means: greedy decoding gives the expected sentence, character for character, and then stops. An unseen wording was
never used in training for that kind of question; its frame ("Do you know ...") may have been used for others. Kinds with
errors in unseen wordings: {kinds}.

`expected.safetensors` holds what transformers computes in float32 for two prompts, in the layout of `tests/golden/`.

## Greedy samples

{free}
Chat:

{chats}

## Limits

It knows nothing outside its templates, cannot reason, and states its little world's simplifications as facts. Long chats
leave the context it was trained on. Do not use it for anything but trying out software.
""")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=list(CONFIGS), required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--seconds", type=float, default=0, help="train for this long instead; the model card records the steps")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--documents", type=int, default=300000)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.steps, args.seconds, args.documents = 80, 0, 8000
    begin = time.time()
    original_scan = modeling_jamba.mamba_selective_scan
    if args.model == "jamba":
        import demo_scan
        try:
            demo_scan.self_check(original_scan)
            modeling_jamba.mamba_selective_scan = demo_scan.mamba_selective_scan
        except Exception:
            traceback.print_exc()
            print("the fast scan failed its check: using transformers' own", flush=True)
    torch.set_float32_matmul_precision("high")
    tokenizer = demo_text.train_tokenizer(args.model, SEED)
    rows, weights = demo_text.pack(tokenizer, args.model, SEED + 1, args.documents, LENGTH + 1)
    val = demo_text.pack(tokenizer, args.model, SEED + 2, 3000, LENGTH + 1)
    print(f"{len(rows)} rows, {rows.size / 1e6:.1f} M tokens, {time.time() - begin:.0f} s", flush=True)
    trainee = Trainee(args.model)
    print(f"{sum(p.numel() for p in trainee.parameters()) / 1e6:.2f} M parameters to train", flush=True)
    option = f" --seconds {args.seconds:.0f}" if args.seconds else ""
    facts = dict(documents=args.documents, batch=args.batch, option=option) | train(trainee, rows, weights, args)
    facts |= validate(trainee, *val)
    facts["parameters"], facts["bytes"] = export(trainee, tokenizer, args, args.out)
    print(json.dumps(facts), flush=True)
    try:
        check_tokenizer(tokenizer, args.model, args.out)
    except Exception:
        traceback.print_exc()
        print("TOKENIZER CHECK FAILED", flush=True)

    torch.set_float32_matmul_precision("highest")
    model = AutoModelForCausalLM.from_pretrained(args.out, dtype=torch.float32, attn_implementation="sdpa",
                                                 experts_implementation="dense").cuda().eval()
    per_kind = 2 if args.smoke else 25
    held = ask_all(model, tokenizer, args.model, demo_corpus.questions(7, True, per_kind))
    known = ask_all(model, tokenizer, args.model, demo_corpus.questions(8, False, per_kind))
    facts |= dict(held_accuracy=held[0], held_count=held[1], known_accuracy=known[0], known_count=known[1])
    for line in held[3][:25] + known[3][:10]:
        print("wrong:", *line, sep=" | ")
    stops = demo_text.DIALECTS[args.model]["stops"]
    free, _ = generate(model, [tokenizer.encode(p).ids for p in FREE], stops, 110)
    talk, ended = generate(model, [demo_text.prompt_ids(tokenizer, args.model, c) for c in CHATS], stops, 110)
    report = dict(by_kind=held[2], free=[(p, tokenizer.decode(t)) for p, t in zip(FREE, free)],
                  chats=[c + [("assistant", tokenizer.decode(t) + ("" if e else " ..."))] for c, t, e in zip(CHATS, talk, ended)])
    card(args.model, args.out, facts, report)
    print(json.dumps(facts), (args.out / "README.md").read_text(), sep="\n", flush=True)

    modeling_jamba.mamba_selective_scan = original_scan
    torch.set_num_threads(8)
    model = AutoModelForCausalLM.from_pretrained(args.out, dtype=torch.float32, attn_implementation="eager",
                                                 experts_implementation="eager").eval()
    mtp = load_mtp(model) if args.model == "deepseek" else None
    short = 24 if mtp is not None else 36  # keeps the file under a megabyte
    text = "Once upon a time, there was a brave mouse named Anna. She lived in a quiet valley. One winter day, snow lay on the ground."
    prompts = [tokenizer.encode(text).ids[:short], demo_text.prompt_ids(
        tokenizer, args.model, [("system", SYSTEM), ("user", "Hello! What is the capital of France?")])]
    assert len(prompts[1]) <= 40
    save_file(expected(model, [torch.tensor(p) for p in prompts], mtp), args.out / "expected.safetensors")
    print({f.name: f.stat().st_size for f in args.out.iterdir()}, f"{time.time() - begin:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
