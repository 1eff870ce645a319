"""Tests of check_includes.py and check_files.py on small trees made here, and of both on the tree itself."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import check_files  # noqa: E402
import check_includes  # noqa: E402

ORDER = """# Folders
    src/cli/        the command
    src/engine/     the loop
    src/layers/     layers
    src/kernels/    kernels
    src/base/       errors
"""


class IncludesTest(unittest.TestCase):
    def check(self, files, order=ORDER):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for path, text in {"docs/ARCHITECTURE.md": order, **files}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            return check_includes.check(root)

    def test_the_order_is_read_from_the_top_down(self):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "docs").mkdir()
            (root / "docs/ARCHITECTURE.md").write_text(ORDER, encoding="utf-8")
            self.assertEqual(check_includes.folder_order(root), ["cli", "engine", "layers", "kernels", "base"])

    def test_a_page_without_the_list_is_refused(self):
        with self.assertRaises(SystemExit):
            self.check({}, order="# Nothing here\n")
        with self.assertRaises(SystemExit):
            self.check({}, order=ORDER + "    src/base/  again\n")

    def test_down_and_sideways_is_fine(self):
        self.assertEqual(self.check({
            "src/layers/moe.cc": '#include "layers/moe.h"\n#include <vector>\n#include "kernels/gemm.h"\n#include "base/error.h"\n',
            "src/kernels/simd/gemm.cc": '#include "kernels/gemm.h"\n#include <hwy/highway.h>\n#include HWY_TARGET_INCLUDE\n',
            "src/cli/main.cc": '#include "medley/engine.h"\n',
            "include/medley/engine.h": '#include "medley/types.h"\n#include <string>\n',
            "examples/hello.cc": '#include "medley/engine.h"\n',
        }), [])

    def test_up_is_reported_with_file_and_line(self):
        problems = self.check({"src/kernels/ref/gemm.cu": '// one\n\n#  include "layers/moe.h"\n'})
        self.assertEqual(len(problems), 1)
        self.assertTrue(problems[0].startswith("src/kernels/ref/gemm.cu:3: "), problems)
        self.assertIn("layers is above kernels", problems[0])

    def test_tests_follow_the_same_rule(self):
        self.assertEqual(len(self.check({"src/base/error_test.cc": '#include "kernels/gemm.h"\n'})), 1)

    def test_comments_do_not_count_but_keep_the_lines(self):
        self.assertEqual(self.check({"src/base/a.h": '/*\n#include "cli/a.h"\n*/\n// #include "cli/a.h"\n'}), [])
        problems = self.check({"src/base/a.h": '/* one\n two */\n#include "cli/a.h"\n'})
        self.assertTrue(problems[0].startswith("src/base/a.h:3: "), problems)

    def test_what_else_is_wrong(self):
        for path, text in {
            "src/base/a.h": '#include "error.h"\n',           # not relative to src/
            "src/base/b.h": '#include "hwy/highway.h"\n',     # a library in quotes
            "src/base/c.h": '#include <base/error.h>\n',      # our own in brackets
            "src/layers/d.h": '#include "medley/engine.h"\n',  # the public API from below the engine
            "src/extra/e.h": "",                               # a folder nobody listed
            "src/f.h": "",                                     # outside of any folder
            "include/medley/g.h": '#include "base/error.h"\n',
            "examples/h.cc": '#include "engine/engine.h"\n',
        }.items():
            with self.subTest(path=path):
                problems = self.check({path: text})
                self.assertEqual(len(problems), 1)
                self.assertTrue(problems[0].startswith(path + ":1: "), problems)


class FilesTest(unittest.TestCase):
    def test_length_limits(self):
        for name, limit in {"src/models/a.cc": 400, "src/kernels/simd/a.cc": 700, "src/kernels/a.h": 700, "src/base/a_test.cc": 700,
                            "tests/a.cc": 700, "examples/a.cc": 60, "include/medley/a.h": 400}.items():
            with self.subTest(name=name):
                self.assertEqual(check_files.check_text(name, "\n" * limit), [])
                problems = check_files.check_text(name, "\n" * (limit + 1))
                self.assertEqual(len(problems), 1)
                self.assertTrue(problems[0].startswith(f"{name}:{limit}: {limit + 1} lines"), problems)
        self.assertEqual(check_files.check_text("docs/long.md", "\n" * 5000), [])

    def test_what_the_golden_set_weighs(self):
        limit = check_files.BUDGETS["tests/golden/"]
        self.assertEqual(check_files.check_sizes({"tests/golden/a": limit, "models/b": 1}), [])
        self.assertEqual(len(check_files.check_sizes({"tests/golden/a": limit, "tests/golden/b/c": 1})), 1)

    def test_paths_of_one_machine(self):
        for path in ("/" + "home/ann/models", "/" + "root/x", "'/" + "work/y'", "a = /" + "workspace/z"):
            with self.subTest(path=path):
                self.assertEqual(len(check_files.check_text("a.md", "fine\n" + path + "\n")), 1)
        for path in ("/" + "etc/hosts", "/" + "proc/self/maps", "src/home/x", "https://example.org/home/x/", "$HOME/root/x", "../home/x"):
            with self.subTest(path=path):
                self.assertEqual(check_files.check_text("a.md", path), [])


class TreeTest(unittest.TestCase):
    def test_the_tree_itself_is_clean(self):
        for script in ("check_includes.py", "check_files.py"):
            with self.subTest(script=script):
                result = subprocess.run([sys.executable, HERE / script], capture_output=True, text=True, check=False)
                self.assertEqual((result.returncode, result.stdout + result.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
