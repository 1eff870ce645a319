#!/usr/bin/env python3
"""Installs the library, builds the example against what was installed, as somebody else's program would be, and runs it.

    install_test.py CMAKE BUILD_DIR SOURCE_DIR BUILD_TYPE CXX_FLAGS
"""
import pathlib
import subprocess
import sys
import tempfile

cmake, build, source, build_type, flags = sys.argv[1:]


def run(*command, **kwargs):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)
    if done.returncode != 0:
        sys.exit(f"{command} gave {done.returncode}:\n{done.stdout}")
    return done.stdout


with tempfile.TemporaryDirectory() as folder:
    prefix, example = pathlib.Path(folder) / "prefix", pathlib.Path(folder) / "build"
    run(cmake, "--install", build, "--prefix", prefix)
    run(cmake, "-S", pathlib.Path(source) / "examples", "-B", example, f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCMAKE_BUILD_TYPE={build_type}", f"-DCMAKE_CXX_FLAGS={flags}")
    run(cmake, "--build", example)
    out = run(example / "example_generate", pathlib.Path(source) / "models/demo-jamba", "The capital of France is", "A cat is")
    france, cat = out.strip().split("\n\n")
    assert france.startswith("The capital of France is Paris."), out
    assert cat.startswith("A cat is an animal."), out
    exported = run("nm", "-DC", "--defined-only", *prefix.glob("lib*/**/libmedley.so"))
    names = [line for line in exported.splitlines() if " T " in line and "medley::" in line]
    public = ("medley::Engine::", "medley::SamplingParams::")
    assert names and all(line.split(" T ")[1].startswith(public) for line in names), names
