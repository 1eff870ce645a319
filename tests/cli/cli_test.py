#!/usr/bin/env python3
"""Drives the command as a user does: exit codes, what goes to stdout and to stderr, numbers it must get right.

    cli_test.py MEDLEY SOURCE_DIR [unittest arguments]
"""
import array
import base64
import json
import math
import os
import pathlib
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

MEDLEY = sys.argv[1]
SOURCE = pathlib.Path(sys.argv[2])
JAMBA = str(SOURCE / "models/demo-jamba")
DEEPSEEK = str(SOURCE / "models/demo-deepseek")
LLAMA = str(SOURCE / "tests/golden/llama")
GGUF = str(SOURCE / "tests/golden/gguf_llama/model.gguf")
TIMEOUT = 120


def medley(*arguments, stdin=None):
    """Runs the command with nothing on stdin (or the given text): (exit code, stdout, stderr)."""
    done = subprocess.run([MEDLEY, *map(str, arguments)], input=stdin if stdin is not None else "",
                          capture_output=True, text=True, timeout=TIMEOUT)
    return done.returncode, done.stdout, done.stderr


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = array.array({"F32": "f", "I64": "q"}[entry["dtype"]])
        values.frombytes(raw[8 + length + begin:8 + length + end])
        tensors[name] = (entry["shape"], values)
    return tensors


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def good(self, *arguments, **kwargs):
        code, out, err = medley(*arguments, **kwargs)
        self.assertEqual((code, err), (0, ""), out)
        return out

    def bad(self, expected_code, *arguments, says=(), **kwargs):
        code, out, err = medley(*arguments, **kwargs)
        self.assertEqual(code, expected_code, out + err)
        self.assertEqual(out, "", "errors go to stderr")
        self.assertTrue(err.startswith("medley: "), err)
        for text in (says,) if isinstance(says, str) else says:
            self.assertIn(text, err)
        return err


class UsageTest(Case):
    def test_help_has_every_option_and_examples(self):
        wanted = {
            "run": "-n --temperature --top-p --top-k --min-p --seed --samples --stop --chat -i --ids --format --ignore-eos --dtype --activations "
                   "--threads --max-batched-tokens --memory --reproducible --quiet --kernels --backend",
            "logits": "--ids --out --chunk --dtype --activations --reproducible --backend",
            "inspect": "--json --memory --dtype --backend",
            "tokenize": "--show --lines --no-special",
            "bench model": "--random-weights --batch --context --prefill --backend --dtype --activations --no-graphs",
            "bench kernels": "--backend --peers",
            "verify": "--chunk --dtype --activations --reproducible --threads --kernels --backend",
        }
        overview = self.good("--help")
        for command, options in wanted.items():
            self.assertIn(command.split()[0], overview)
            text = self.good(*command.split(), "--help")
            for option in options.split():
                self.assertRegex(text, rf"(?m)^ +(-\w,)?{re.escape(option)}\b")
            self.assertIn("Examples:\n  medley ", text)
            self.assertNotIn("NONNEGATIVE", text)

    def test_version(self):
        self.assertRegex(self.good("--version"), r"^medley \d+\.\d+\.\d+\n$")

    def test_wrong_usage_is_2(self):
        for arguments in [(), ("fly",), ("run",), ("run", JAMBA, "hi", "--no-such-option"),
                          ("run", JAMBA, "hi", "-n", "many"), ("run", JAMBA, "hi", "-n", "0"),
                          ("run", JAMBA, "hi", "-n", "-3"),
                          ("run", JAMBA, "hi", "--temperature", "-1"), ("run", JAMBA, "hi", "--temperature", "nan"),
                          ("run", JAMBA, "hi", "--top-p", "1.5"), ("run", JAMBA, "hi", "--top-k", "-1"),
                          ("run", JAMBA, "hi", "--min-p", "2"), ("run", JAMBA, "hi", "--seed", "x"), ("run", JAMBA, "hi", "--seed", "-1"),
                          ("run", JAMBA, "hi", "--samples", "0"), ("run", JAMBA, "-i", "--samples", "2"),
                          ("run", JAMBA, "hi", "--stop", ""), ("run", JAMBA, "hi", "--format", "xml"),
                          ("run", JAMBA, "hi", "--dtype", "f64"), ("run", JAMBA, "hi", "--activations", "int4"), ("run", JAMBA, "hi", "--memory", "lots"),
                          ("run", JAMBA, "hi", "--threads", "-2"), ("run", JAMBA, "hi", "--kernels", "magic"), ("run", JAMBA, "hi", "--backend", "tpu"),
                          ("run", JAMBA, "hi", "--max-batched-tokens", "0"),
                          ("run", JAMBA, "--ids", "1,a"), ("run", JAMBA, "--ids", ""), ("run", JAMBA, "hi", "--ids", "1"),
                          ("run", JAMBA, "--ids", "1", "--chat"), ("run", JAMBA, "-i", "--format", "json"),
                          ("run", JAMBA, "hi", "--system", "x"), ("run", JAMBA, "hi", "there"),
                          ("logits", JAMBA, "--ids", "1"), ("logits", JAMBA, "--out", "x"),
                          ("logits", JAMBA, "--ids", "1", "--out", "x", "--chunk", "-1"),
                          ("inspect",), ("inspect", JAMBA, "--dtype", "auto"), ("inspect", JAMBA, "--memory", "0"),
                          ("tokenize", JAMBA), ("tokenize", JAMBA, "x", "--lines"), ("tokenize", JAMBA, "--lines", "--show"), ("verify",)]:
            with self.subTest(arguments):
                self.bad(2, *arguments)
        self.bad(2, "run", says="medley run --help")
        self.bad(2, "bench", "model", says="medley bench model --help")

    def test_failed_work_is_1_and_names_what_is_wrong(self):
        self.bad(1, "run", self.folder / "nope", "hi", says=["nope", "is not there"])
        self.bad(1, "run", self.folder, "hi", says=[str(self.folder), "config.json"])
        self.bad(1, "inspect", self.folder / "x.json", says="x.json")
        self.bad(1, "verify", JAMBA + "x", says="demo-jambax")
        self.bad(1, "tokenize", LLAMA, "hi", says="tokenizer.json")
        self.bad(1, "run", JAMBA, "hi", "--backend", "cpu", "--activations", "int8", says=["demo-jamba", "quantised in blocks"])
        self.bad(1, "run", GGUF, "--ids", "1", "--backend", "cuda", "--activations", "int8", says="backend cuda has no kernels")
        self.bad(1, "run", JAMBA, "hi", "-n", "5000", says=["5,000", "1,024"])
        self.bad(1, "run", JAMBA, "hi", "--memory", "100K", says=["cannot fit", "2 tokens"])
        self.bad(1, "run", JAMBA, "--ids", "5000", says=["5000", "2048"])
        self.bad(1, "logits", JAMBA, "--ids", "5000", "--out", self.folder / "o", says="5000")
        self.bad(1, "logits", JAMBA, "--ids", "5", "--out", self.folder / "no/such/o", says="no/such/o")
        self.bad(1, "run", LLAMA, "hi", "--format", "ids", says="tokenizer.json")
        self.bad(1, "run", LLAMA, "--ids", "1", says=["tokenizer.json", "--format ids"])
        self.bad(1, "run", JAMBA, "", says="prompt")
        self.bad(1, "run", JAMBA, "hi", "--backend", "cpu", "--kernels", "cuda", says=["backend cpu", "avx512"])

    def test_backend_cuda_says_what_is_missing(self):
        if "on cuda" in self.good("inspect", JAMBA, "--backend", "auto"):
            self.skipTest("there is a CUDA device")
        for command in [("run", JAMBA, "hi"), ("verify", JAMBA), ("logits", JAMBA, "--ids", "1", "--out", self.folder / "o")]:
            self.bad(1, *command, "--backend", "cuda", says=["backend cuda cannot be used", "CUDA"])
        self.bad(1, "bench", "kernels", says="CUDA")
        self.bad(1, "bench", "kernels", "--backend", "cpu", says="./dev bench")
        short = ("run", JAMBA, "A cat", "-n", "3", "--seed", "1", "--backend")
        self.assertEqual(self.good(*short, "auto"), self.good(*short, "cpu"))

    def test_unknown_model_types_list_the_known_ones(self):
        (self.folder / "config.json").write_text('{"model_type": "perceptron"}')
        families = ["deepseek_v2", "deepseek_v3", "jamba", "llama", "mamba", "mamba2", "mistral", "mixtral", "qwen2", "qwen3",
                    "qwen3_moe"]
        for arguments in [("inspect", self.folder), ("run", self.folder, "hi"), ("inspect", self.folder / "config.json")]:
            self.bad(1, *arguments, says=["perceptron", "config.json", *families])

    def test_a_broken_checkpoint_names_its_tensor(self):
        for name in ("config.json", "model.safetensors"):
            shutil.copy(SOURCE / "tests/golden/llama" / name, self.folder)
        config = json.loads((self.folder / "config.json").read_text())
        config["intermediate_size"] += 1
        (self.folder / "config.json").write_text(json.dumps(config))
        self.bad(1, "run", self.folder, "--ids", "1", "--format", "ids", says=["model.safetensors", "mlp", "shape"])
        config["intermediate_size"] -= 1
        config["frobnication"] = True
        (self.folder / "config.json").write_text(json.dumps(config))
        self.bad(1, "inspect", self.folder, says=["config.json", "frobnication"])


class RunTest(Case):
    def test_text_is_all_of_stdout(self):
        self.assertEqual(self.good("run", JAMBA, "What is the capital of France?", "--chat", "--temperature", "0"),
                         "The capital of France is Paris.\n")
        self.assertEqual(self.good("run", DEEPSEEK, "What is the capital of France?", "--chat", "--temperature", "0"),
                         "The capital of France is Paris.\n")

    def test_prompt_from_stdin(self):
        options = ("--temperature", "0", "-n", "12")
        expected = self.good("run", JAMBA, "The capital of France is", *options)
        self.assertEqual(self.good("run", JAMBA, *options, stdin="The capital of France is\n"), expected)
        self.assertEqual(self.good("run", JAMBA, "-", *options, stdin="The capital of France is"), expected)
        self.bad(1, "run", JAMBA, stdin="", says="prompt")

    def test_formats_tell_the_same(self):
        options = ("run", JAMBA, "Once upon a time", "-n", "20", "--seed", "7")
        text = self.good(*options)
        ids = self.good(*options, "--format", "ids")
        self.assertRegex(ids, r"^\d+(,\d+){19}\n$")
        data = json.loads(self.good(*options, "--format", "json"))
        self.assertEqual(data["text"] + "\n", text)
        self.assertEqual(",".join(map(str, data["ids"])) + "\n", ids)
        self.assertEqual(data["finish"], "length")
        self.assertEqual(data["usage"]["generated_tokens"], 20)
        self.assertEqual(data["usage"]["prompt_tokens"], 5)
        self.assertGreater(data["usage"]["seconds"], 0)

    def test_ids_in_are_the_text_in(self):
        ids = self.good("tokenize", JAMBA, "Once upon a time").strip()
        options = ("-n", "20", "--temperature", "0")
        self.assertEqual(self.good("run", JAMBA, "--ids", ids, *options),
                         self.good("run", JAMBA, "Once upon a time", *options))

    def test_the_seed_decides(self):
        def story(*options):
            return self.good("run", JAMBA, "Once upon a time", "-n", "30", "--temperature", "1", *options)
        self.assertEqual(story(), story("--seed", "0"))
        self.assertEqual(story("--seed", "3"), story("--seed", "3", "--threads", "1"))
        self.assertNotEqual(story("--seed", "3"), story("--seed", "4"))

    def test_samples_are_labelled_and_the_first_is_the_only_one(self):
        options = ("run", JAMBA, "Once upon a time", "-n", "30", "--temperature", "1", "--seed", "3")
        first = self.good(*options)
        parts = re.split(r"(?m)^\[sample (\d)\]\n", self.good(*options, "--samples", "3"))
        self.assertEqual((parts[0], parts[1::2]), ("", ["0", "1", "2"]))
        self.assertEqual(parts[2], first)
        self.assertEqual(len(set(parts[2::2])), 3)
        ids = self.good(*options, "--samples", "3", "--format", "ids").splitlines()
        objects = [json.loads(line) for line in self.good(*options, "--samples", "3", "--format", "json").splitlines()]
        self.assertEqual([item["sample"] for item in objects], [0, 1, 2])
        self.assertEqual([item["text"] + "\n" for item in objects], parts[2::2])
        self.assertEqual([f"{item['sample']}: " + ",".join(map(str, item["ids"])) for item in objects], ids)

    def test_defaults_come_from_generation_config(self):
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            os.symlink(pathlib.Path(JAMBA) / name, self.folder / name)
        greedy = self.good("run", JAMBA, "Once", "-n", "30", "--temperature", "0")
        config = self.folder / "generation_config.json"
        config.write_text('{"do_sample": false, "eos_token_id": [4, 1]}')
        self.assertEqual(self.good("run", self.folder, "Once", "-n", "30"), greedy)
        config.write_text('{"do_sample": true, "temperature": 1.5, "top_k": 1}')
        self.assertEqual(self.good("run", self.folder, "Once", "-n", "30"), greedy)
        self.assertNotEqual(self.good("run", self.folder, "Once", "-n", "30", "--top-k", "0"), greedy)
        config.write_text('{"temperature": "warm"}')
        self.bad(1, "run", self.folder, "Once", says=["generation_config.json", "temperature"])

    def test_stop_strings_may_span_tokens(self):
        options = ("run", JAMBA, "The capital of France is", "--temperature", "0")
        whole = self.good(*options)
        self.assertTrue(whole.startswith(" Paris."), whole)
        self.assertEqual(self.good(*options, "--stop", "aris"), " P\n")
        self.assertEqual(self.good(*options, "--stop", "nothing", "--stop", "s."), " Pari\n")
        self.assertEqual(self.good("run", JAMBA, "--stop", "aris", "The capital of France is", "--temperature", "0"), " P\n")
        data = json.loads(self.good(*options, "--stop", "aris", "--format", "json"))
        self.assertEqual((data["text"], data["finish"]), (" P", "stop"))

    def test_ignore_eos(self):
        options = ("run", JAMBA, "What is the capital of France?", "--chat", "--temperature", "0", "-n", "40")
        ended = json.loads(self.good(*options, "--format", "json"))
        self.assertEqual(ended["finish"], "stop")
        self.assertLess(len(ended["ids"]), 40)
        longer = json.loads(self.good(*options, "--format", "json", "--ignore-eos"))
        self.assertEqual((longer["finish"], len(longer["ids"])), ("length", 40))
        self.assertEqual(longer["ids"][:len(ended["ids"])], ended["ids"])

    def test_greedy_ids_are_those_recorded(self):
        for name in ("llama", "deepseek_v3_mtp", "mamba2"):
            model = SOURCE / "tests/golden" / name
            expected = read_safetensors(model / "expected.safetensors")
            ids = ",".join(map(str, expected["input_ids.0"][1]))
            for options in [(), ("--max-batched-tokens", "5"), ("--reproducible",), ("--kernels", "ref"), ("--memory", "4M")]:
                out = self.good("run", model, "--ids", ids, "-n", "20", "--temperature", "0", "--ignore-eos", "--format", "ids",
                                "--dtype", "f32", *options)
                self.assertEqual(out.strip(), ",".join(map(str, expected["greedy.0"][1])), (name, options))

    def test_interactive_keeps_the_conversation(self):
        out = self.good("run", JAMBA, "-i", "--temperature", "0", stdin="What is the capital of Japan?\n\nAnd Norway?\n")
        self.assertEqual(out, "The capital of Japan is Tokyo.\nThe capital of Norway is Oslo.\n")
        out = self.good("run", JAMBA, "What is the capital of Japan?", "-i", "--temperature", "0",
                        stdin="/reset\nWhat is the capital of France?\n/quit\nHello!\n")
        self.assertEqual(out, "The capital of Japan is Tokyo.\nThe capital of France is Paris.\n")

    def test_a_long_prompt_gets_what_room_there_is(self):
        prompt = "The cat. " * 325  # near the model's 1,024 positions
        ids = self.good("tokenize", JAMBA, prompt).count(",") + 1
        self.assertTrue(900 < ids < 1000, ids)
        self.good("run", JAMBA, prompt, "--temperature", "0")
        self.bad(1, "run", JAMBA, prompt, "-n", "128", says="1,024")

    def test_ctrl_c_ends_the_text_politely(self):
        command = [MEDLEY, "run", JAMBA, "Once upon a time", "-n", "1000", "--ignore-eos", "--threads", "1"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            begin = os.read(process.stdout.fileno(), 1)  # generation is under way
            process.send_signal(signal.SIGINT)
            rest, err = process.communicate(timeout=TIMEOUT)
        self.assertEqual((process.returncode, err), (130, b""))
        self.assertTrue((begin + rest).endswith(b"\n"))


class TerminalTest(Case):
    def stderr_on_a_terminal(self, *arguments, typed=None):
        """(exit code, stdout, what a terminal as stderr gets); with `typed`, stdin is that terminal too"""
        master, slave = pty.openpty()
        stdin = subprocess.DEVNULL if typed is None else slave
        with subprocess.Popen([MEDLEY, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=slave) as process:
            os.close(slave)
            if typed is not None:
                os.write(master, typed)
            seen = b""
            try:
                while chunk := os.read(master, 65536):
                    seen += chunk
            except OSError:  # the other end is closed
                pass
            out = process.stdout.read().decode()
            process.wait(timeout=TIMEOUT)
        os.close(master)
        return process.returncode, out, seen.decode()

    def test_progress_and_one_line_of_figures(self):
        options = ("run", JAMBA, "The capital of France is", "--temperature", "0")
        code, out, seen = self.stderr_on_a_terminal(*options)
        self.assertEqual((code, out), (0, self.good(*options)))
        self.assertIn("loading [", seen)
        self.assertNotIn("101%", seen)
        after = seen.rsplit("\x1b[K", 1)[1].replace("\r", "")
        self.assertEqual(after.count("\n"), 1, seen)
        self.assertRegex(after, r"prompt 6 tokens, [\d.]+ tok/s; generated \d+, [\d.]+ tok/s; first token after [\d.]+ s; "
                                r"cache [\d.]+ \w+ of [\d.]+ \w+; on (cpu|cuda \(.+\))\n$")

    def test_interactive_shows_how(self):
        code, out, seen = self.stderr_on_a_terminal("run", JAMBA, "-i", "--temperature", "0",
                                                    typed=b"What is the capital of Norway?\n/quit\n")
        self.assertEqual((code, out), (0, "The capital of Norway is Oslo.\n"))
        self.assertIn("/reset", seen)
        self.assertIn("> ", seen)
        self.assertEqual(seen.count("tok/s; generated"), 1)

    def test_quiet_is_silent(self):
        self.assertEqual(self.stderr_on_a_terminal("run", JAMBA, "Once", "-n", "2", "--quiet")[2], "")


class TokenizeTest(Case):
    def test_ids(self):
        self.assertEqual(self.good("tokenize", JAMBA, "Once upon a time"), "0,685,684,261,578\n")
        self.assertEqual(self.good("tokenize", JAMBA, "-", stdin="Once upon a time"), "0,685,684,261,578\n")
        self.assertEqual(self.good("tokenize", JAMBA, "Once", "--no-special"), "685\n")
        self.assertEqual(self.good("tokenize", JAMBA, "<|im_start|>", "--no-special"), "3\n")

    def test_lines(self):
        lines = ['"Once upon"', '{"bytes": [79, 110, 99, 101, 255]}', '[685, 684]', '""', '[]',
                 '{"messages": [{"role": "user", "content": "hi"}]}',
                 '{"messages": [], "template": "{{ bos_token }}{{ x }}{{ strftime_now(\'%Y\') }}", "variables": {"x": 5}, "now": 0}',
                 '{"messages": [], "template": "{{ raise_exception(\'no\') }}"}', '{"messages": [], "template": "{% if %}"}']
        out = [json.loads(line) for line in self.good("tokenize", JAMBA, "--lines", stdin="\n".join(lines) + "\n").splitlines()]
        self.assertEqual(out[0], [0, 685, 684])
        self.assertEqual(out[1][:2], [0, 685])
        self.assertEqual(out[2], {"text": "Once upon", "pieces": ["Once", " upon", ""]})
        self.assertEqual(out[3:5], [[0], {"text": "", "pieces": [""]}])
        self.assertIn("<|im_start|>user\nhi<|im_end|>", out[5]["text"])
        self.assertEqual(out[6], {"text": "<|startoftext|>51970"})
        self.assertIn("no", out[7]["error"])
        self.assertIn("line 1", out[8]["error"])
        self.assertEqual(self.good("tokenize", JAMBA, "--lines", "--no-special", stdin='"Once"\n'), "[685]\n")
        for line in ("nonsense", "5", '{"bytes": [256]}', '["a"]', "{}"):
            code, out, err = medley("tokenize", JAMBA, "--lines", stdin='"Once"\n' + line + "\n")
            self.assertEqual((code, out), (1, "[0,685]\n"), line)
            self.assertIn("stdin, line 2: ", err)

    def test_a_tokenizer_model_serves_where_there_is_no_tokenizer_json(self):
        entry = json.loads((SOURCE / "tests/tokenizer/sentencepiece.json").read_text())["models"][0]
        (self.folder / "tokenizer.model").write_bytes(base64.b64decode(entry["model"]))
        ids = json.loads(self.good("tokenize", self.folder, "--lines", "--no-special", stdin='"the number of people"\n'))
        self.assertEqual(json.loads(self.good("tokenize", self.folder, "--lines", stdin=json.dumps(ids) + "\n"))["text"], "the number of people")
        (self.folder / "tokenizer.model").write_bytes(b"garbage")
        self.bad(1, "tokenize", self.folder, "x", says=["tokenizer.model", "byte"])

    def test_show(self):
        self.assertEqual(self.good("tokenize", JAMBA, "Once upon", "--show"), "0\t<|startoftext|>\n685\tOnce\n684\t\u0120upon\n")


class InspectTest(Case):
    def inspect(self, *arguments):
        return json.loads(self.good("inspect", *arguments, "--json"))

    def test_cache_costs_of_published_models(self):
        text = self.good("inspect", SOURCE / "configs/deepseek-v3.json")
        self.assertIn("61 layers x latent 512 + rotary key 64; 70,272 bytes a token", text)
        self.assertRegex(text, r"(?m)^MTP +1 module: 11,610,068,224 parameters more.*cache 1,152 bytes a token")
        self.assertIn("327,680 bytes a token", self.good("inspect", SOURCE / "configs/llama-3-70b.json"))
        deepseek = self.inspect(SOURCE / "configs/deepseek-v3.json")
        self.assertEqual(deepseek["cache"]["bytes_per_token"], 61 * 576 * 2)
        self.assertEqual(deepseek["mtp"]["cache"]["bytes_per_token"], 576 * 2)
        self.assertEqual(deepseek["mtp"]["parameters"]["total"], 11_610_068_224)
        self.assertEqual(deepseek["layers"], {"MLA attention": 61, "dense MLP": 3, "MoE, 8 of 256 experts + shared": 58})
        self.assertEqual(self.inspect(SOURCE / "configs/llama-3-70b.json")["cache"]["bytes_per_token"], 80 * 2 * 8 * 128 * 2)
        f32 = self.inspect(SOURCE / "configs/deepseek-v3.json", "--dtype", "f32")
        self.assertEqual(f32["cache"]["bytes_per_token"], 61 * 576 * 4)
        mamba = self.inspect(SOURCE / "configs/mamba-2.8b.json")
        self.assertEqual(mamba["cache"]["bytes_per_token"], 0)
        self.assertEqual(mamba["cache"]["bytes_per_request"], 64 * 5120 * (3 + 16) * 4)
        self.assertIsNone(mamba["fits"]["tokens_of_one_request"])

    def test_parameters_are_those_of_configs_readme(self):
        rows = re.findall(r"(?m)^\| ([\w.-]+) \| \S+/\S+ \| ([\d,]+) \| ([\d,]+|the same) \| ([\d,]+) \|$",
                          (SOURCE / "configs/README.md").read_text())
        self.assertEqual({row[0] for row in rows}, {path.stem for path in (SOURCE / "configs").glob("*.json")})
        for name, total, active, without in rows:
            with self.subTest(name):
                number = lambda text: int(text.replace(",", ""))
                parameters = self.inspect(SOURCE / f"configs/{name}.json")["parameters"]
                self.assertEqual(parameters, {"total": number(total),
                                              "active": number(total if active == "the same" else active),
                                              "active_without_input_embedding": number(without)})

    def test_cache_bytes_are_the_products_of_configs_readme(self):
        rows = re.findall(r"(?m)^\| ([\w.-]+) \| ([\d x+()]+) = ([\d,]+) \| ([\d x+()]+) = ([\d,]+) \|$",
                          (SOURCE / "configs/README.md").read_text())
        self.assertEqual({row[0] for row in rows}, {path.stem for path in (SOURCE / "configs").glob("*.json")})
        for name, token, token_bytes, request, request_bytes in rows:
            with self.subTest(name):
                cache = self.inspect(SOURCE / f"configs/{name}.json")["cache"]
                for product, said, key in ((token, token_bytes, "bytes_per_token"), (request, request_bytes, "bytes_per_request")):
                    self.assertEqual(eval(product.replace("x", "*")), cache[key])
                    self.assertEqual(int(said.replace(",", "")), cache[key])

    def test_parameters_are_those_of_the_files(self):
        for model in (JAMBA, DEEPSEEK, SOURCE / "tests/golden/deepseek_v3_mtp", SOURCE / "tests/golden/mamba2"):
            raw = (pathlib.Path(model) / "model.safetensors").read_bytes()
            header = json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])
            header.pop("__metadata__", None)
            mtp = {name for name in header if re.search(r"(?:enorm|hnorm|eh_proj|shared_head)", name)}
            prefix = next(iter(mtp)).split("layers.")[1].split(".")[0] if mtp else None
            count = lambda names: sum(math.prod(header[name]["shape"]) for name in names)
            of_mtp = {name for name in header if prefix and f"layers.{prefix}." in name}
            shared = {name for name in of_mtp if name.endswith(("embed_tokens.weight", "shared_head.head.weight"))}
            data = self.inspect(model)
            self.assertEqual(data["parameters"]["total"], count(set(header) - of_mtp), model)
            if of_mtp:
                self.assertEqual(data["mtp"]["parameters"]["total"], count(of_mtp - shared), model)
                self.assertTrue(data["stored"]["mtp"])

    def test_sampling_defaults_and_eos(self):
        self.assertIn("\nsampling    temperature 0.6, top-p 0.9 by default; a text ends with token 4 or 1\n", self.good("inspect", JAMBA))
        data = self.inspect(JAMBA)
        self.assertEqual(data["eos_token_ids"], [4, 1])
        self.assertAlmostEqual(data["sampling"]["temperature"], 0.6, places=6)
        shutil.copy(pathlib.Path(JAMBA) / "config.json", self.folder)
        config = self.folder / "generation_config.json"
        config.write_text('{"do_sample": false, "top_k": 5, "repetition_penalty": 1.5, "eos_token_id": 7}')
        self.assertIn("\nsampling    greedy, repetition penalty 1.5 by default; a text ends with token 7\n", self.good("inspect", self.folder))
        config.write_text('{"top_k": 5, "min_p": 0.25}')
        text = self.good("inspect", self.folder)
        self.assertIn("\nsampling    temperature 1, top-k 5, min-p 0.25 by default; ", text)
        config.write_text('{"eos_token_id": "x"}')
        self.bad(1, "inspect", self.folder, says=["generation_config.json", "eos_token_id"])

    def test_what_fits(self):
        fits = self.inspect(SOURCE / "configs/llama-3-8b.json", "--memory", "16G")["fits"]
        per_token = 32 * 2 * 8 * 128 * 2
        self.assertLessEqual(fits["tokens_of_one_request"], 2**34 // per_token)
        self.assertGreater(fits["tokens_of_one_request"], 2**34 // per_token * 0.95)
        self.assertEqual(fits["request_tokens"], 4096)
        self.assertEqual(fits["requests"], 32)  # to the last byte
        less = self.inspect(SOURCE / "configs/llama-3-8b.json", "--memory", "15.99G")["fits"]
        self.assertEqual(less["requests"], 31)
        short = self.inspect(SOURCE / "configs/llama-3-8b.json", "--memory", "16G", "--request-tokens", "1024")["fits"]
        self.assertEqual(short["requests"], 4 * 32)
        self.bad(1, "inspect", SOURCE / "configs/llama-3-8b.json", "--memory", "1K")


class LogitsTest(Case):
    def logits(self, model, ids, *options):
        out = self.folder / "logits.safetensors"
        self.assertEqual(self.good("logits", model, "--ids", ",".join(map(str, ids)), "--out", out, *options), "")
        return read_safetensors(out)["logits"]

    def test_they_are_the_recorded_ones(self):
        for name in ("qwen2", "deepseek_v2_lite", "jamba"):
            model = SOURCE / "tests/golden" / name
            expected = read_safetensors(model / "expected.safetensors")
            shape, values = self.logits(model, expected["input_ids.0"][1], "--chunk", "3")
            self.assertEqual(shape, expected["logits.0"][0])
            recorded = expected["logits.0"][1]
            mean = sum(recorded) / len(recorded)
            deviation = (sum((x - mean)**2 for x in recorded) / len(recorded))**0.5
            error = max(abs(a - b) for a, b in zip(values, recorded)) / deviation
            self.assertLess(error, 1e-4)
            line = self.good("verify", model, "--chunk", "3").splitlines()[0]
            said = float(re.search(r"max error (\S+)", line)[1])
            self.assertAlmostEqual(said / error, 1, delta=0.01)

    def test_activations_in_int8_leave_no_trace_of_the_chunks(self):
        ids = list(range(3, 40))
        options = ("--activations", "int8", "--reproducible", "--threads", "2")
        whole = self.logits(GGUF, ids, *options)
        for chunk in ("1", "7"):
            self.assertEqual(self.logits(GGUF, ids, "--chunk", chunk, *options), whole)
        self.assertNotEqual(self.logits(GGUF, ids), whole)

    def test_mtp_logits_are_the_recorded_ones(self):
        model = SOURCE / "tests/golden/glm4_moe_mtp"
        expected = read_safetensors(model / "expected.safetensors")
        ids = ",".join(map(str, expected["input_ids.0"][1]))
        for chunk in ("0", "5"):
            out = self.folder / "mtp.safetensors"
            self.good("logits", model, "--ids", ids, "--mtp", "--chunk", chunk, "--out", out)
            got = read_safetensors(out)
            for name in ("logits", "mtp_logits"):
                shape, values = got[name]
                recorded = expected[name + ".0"]
                self.assertEqual(shape, recorded[0])
                self.assertLess(max(abs(a - b) for a, b in zip(values, recorded[1])), 1e-3)
        self.good("logits", model, "--ids", "5", "--mtp", "--out", out)
        self.assertEqual(read_safetensors(out)["mtp_logits"][0][0], 0)
        self.bad(1, "logits", LLAMA, "--ids", "5", "--mtp", "--out", out, says="has no module for multi-token prediction")

    def test_reproducible_chunks_change_no_bit(self):
        for model in (JAMBA, DEEPSEEK):
            ids = range(5, 50)
            whole = self.logits(model, ids, "--reproducible")
            for chunk in ("1", "7"):
                self.assertEqual(self.logits(model, ids, "--reproducible", "--chunk", chunk), whole)


class VerifyTest(Case):
    def test_passes_and_says_so(self):
        for model in (JAMBA, SOURCE / "tests/golden/deepseek_v3_mtp"):
            out = self.good("verify", model, "--chunk", "5")
            self.assertRegex(out, r"(?m)^PASS 0: \d+ tokens, max error \d\.\d+e-\d+ of the deviation "
                                  r"\(aim 1.0e-04, bar 1.0e-03\), greedy \d+/20")
        self.assertRegex(out, r"(?m)^PASS 0 mtp: 36 tokens, max error \d\.\d+e-\d+ of the deviation")
        self.assertRegex(self.good("verify", LLAMA, "--dtype", "bf16"), r"^PASS 0: .* rms error")

    def test_activations_in_int8_have_a_bar_of_their_own(self):
        for options in ((), ("--dtype", "bf16")):
            out = self.good("verify", GGUF, "--activations", "int8", *options)
            self.assertRegex(out, r"(?m)^PASS 0: \d+ tokens, rms error")
            for error in re.findall(r"rms error (\S+) of", out):
                self.assertGreater(float(error), 0.002, "nothing was quantised")

    def copy(self, change, model=LLAMA):
        for name in ("config.json", "model.safetensors"):
            shutil.copy(pathlib.Path(model) / name, self.folder)
        raw = bytearray((pathlib.Path(model) / "expected.safetensors").read_bytes())
        length = struct.unpack("<Q", raw[:8])[0]
        header = json.loads(raw[8:8 + length])
        header.pop("__metadata__", None)
        change(raw, {name: 8 + length + entry["data_offsets"][0] for name, entry in header.items()})
        (self.folder / "expected.safetensors").write_bytes(raw)

    def fails(self):
        code, out, err = medley("verify", self.folder)
        self.assertEqual((code, err), (1, ""))
        return out

    def test_fails_for_a_wrong_logit(self):
        def change(raw, at):
            struct.pack_into("<f", raw, at["logits.1"] + 40, 9.0)
        self.copy(change)
        out = self.fails()
        self.assertRegex(out, r"(?m)^PASS 0: ")
        self.assertRegex(out, r"(?m)^FAIL 1: ")

    def test_fails_for_a_wrong_mtp_logit(self):
        def change(raw, at):
            struct.pack_into("<f", raw, at["mtp_logits.2"] + 40, 9.0)
        self.copy(change, SOURCE / "tests/golden/deepseek_v3_mtp")
        out = self.fails()
        self.assertRegex(out, r"(?m)^PASS 2: ")
        self.assertRegex(out, r"(?m)^FAIL 2 mtp: ")

    def test_fails_for_a_logit_that_is_no_number(self):
        def change(raw, at):
            struct.pack_into("<f", raw, at["logits.2"] + 40, float("nan"))
        self.copy(change)
        self.assertRegex(self.fails(), r"(?m)^FAIL 2: ")

    def test_rows_that_hang_on_tied_index_scores(self):
        self.copy(lambda raw, at: None, SOURCE / "tests/golden/deepseek_v32")
        raw = bytearray((self.folder / "model.safetensors").read_bytes())
        length = struct.unpack("<Q", raw[:8])[0]
        for name, entry in json.loads(raw[8:8 + length]).items():
            if name.endswith("indexer.weights_proj.weight"):
                begin, end = (8 + length + offset for offset in entry["data_offsets"])
                raw[begin:end] = bytes(end - begin)  # every key scores 0: all is a tie from the sixth key on
        (self.folder / "model.safetensors").write_bytes(raw)
        self.assertRegex(self.fails(), r"(?m)^FAIL 0: 5 tokens, .*; 25 more hang on keys with equal index scores.*; too many for a verdict$")

        # Of nine tokens the five before any tie are a verdict, and are held to the bar.
        expected = (self.folder / "expected.safetensors").read_bytes()
        length = struct.unpack("<Q", expected[:8])[0]
        header, data, kept = json.loads(expected[8:8 + length]), b"", {}
        for name, rows in {"input_ids.0": 9, "greedy.0": 0, "logits.0": 9, "greedy_gap.0": 0}.items():
            entry = header[name]
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            part = expected[begin:begin + (end - begin) // max(entry["shape"][0], 1) * rows]
            kept[name] = {"dtype": entry["dtype"], "shape": [rows, *entry["shape"][1:]], "data_offsets": [len(data), len(data) + len(part)]}
            data += part

        def write(data):
            text = json.dumps(kept).encode()
            text += b" " * (-len(text) % 8)
            (self.folder / "expected.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        write(data)
        self.assertRegex(self.good("verify", self.folder), r"^PASS 0: 5 tokens, .*; 4 more hang on keys with equal index scores")
        wrong = bytearray(data)
        struct.pack_into("<f", wrong, kept["logits.0"]["data_offsets"][0] + 40, 9.0)
        write(bytes(wrong))
        self.assertRegex(self.fails(), r"^FAIL 0: 5 tokens, ")

    def test_greedy_counts_until_it_is_undecided(self):
        def wrong_token(raw, at):
            struct.pack_into("<q", raw, at["greedy.0"] + 8 * 6, 330)
        self.copy(wrong_token)
        self.assertRegex(self.fails(), r"(?m)^FAIL 0: .*greedy 6/20: step 6 gives \d+, want 330")

        def wrong_token_after_a_small_gap(raw, at):
            wrong_token(raw, at)
            struct.pack_into("<f", raw, at["greedy_gap.0"] + 4 * 5, 1e-6)
        self.copy(wrong_token_after_a_small_gap)
        self.assertRegex(self.good("verify", self.folder), r"(?m)^PASS 0: .*greedy 5/20 \(undecided from step 5: gap 1e-06\)")

    def test_names_what_is_missing(self):
        for name in ("config.json", "model.safetensors"):
            shutil.copy(pathlib.Path(LLAMA) / name, self.folder)
        self.bad(1, "verify", self.folder, says="expected.safetensors")
        shutil.copy(pathlib.Path(LLAMA) / "model.safetensors", self.folder / "expected.safetensors")
        self.bad(1, "verify", self.folder, says=["expected.safetensors", "input_ids"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
