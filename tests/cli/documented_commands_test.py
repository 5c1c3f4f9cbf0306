#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Every command that the documents, the manual and emuvctl's help show works. Those in
blocks are run, on the recorded machine; those that would change anything, with
--dry-run. Those in sentences have verbs and options that there are. The manual has each
verb, and no option that a verb lacks. Other commands are not run: bash parses them, and
documented_tools_test looks at their words."""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# These would change something; they are run with --dry-run.
CHANGES = {"apply", "batch", "cdi generate", "cdi refresh", "create", "define", "destroy",
           "load", "resize", "run", "start", "stop", "undefine", "unload"}
# These show the machine until somebody ends them: their options alone are looked at.
STAYS = {"serve", "top", "vm-serve"}
# These need the CUDA library, which need not be built here.
OF_LIBRARY = {"batch", "cdi generate", "container-args", "run"}
# Exit status 1 where the machine is not as they want it.
MAY_FAIL = {"assert", "doctor", "why"}

# Refused since the recorded machine is not the reader's: it has that already, or too
# little RAM.
OF_THIS_MACHINE = (r"is taken by emuv|is there already|the profile \[team-a\] is in|"
                   r"are promised already|the module is loaded already")

OUT_OF_MEMORY = """torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a \
total capacity of 23.64 GiB of which 1.12 GiB is free. Including non-PyTorch memory, this process has \
22.51 GiB memory in use. Of the allocated memory 20.03 GiB is allocated by PyTorch, and 2.01 GiB is \
reserved by PyTorch but unallocated.
"""

MODEL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 4096,
         "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "vocab_size": 32000, "torch_dtype": "bfloat16",
         "max_position_embeddings": 32768, "sliding_window": None,
         "tie_word_embeddings": False}


def documents():
    """The tree's documents; those of an experiment that is over are no instructions."""
    return [ROOT / "README.md", ROOT / "DESIGN.md", ROOT / "CONTRIBUTING.md",
            *sorted(path for path in (ROOT / "docs").rglob("*.md")
                    if "notebook" not in path.parts)]


def blocks(text):
    """Lines of blocks with their numbers; one that goes on is one line."""
    inside, held, first = False, "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
            continue
        if not inside:
            continue
        first = first if held else number
        held += line
        if held.endswith("\\"):
            held = held[:-1]
            continue
        yield first, held
        held = ""


def scripts():
    """The lines for a shell in blocks without a language: those behind `$`, or all. Each
    with the texts that will do."""
    for path in documents():
        text = path.read_text(encoding="utf-8")
        for block in re.finditer(r"^ *```(\w*)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
            if block[1]:
                continue
            where = f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, block.start()) + 1}"
            lines = [line for _, line in blocks(f"```\n{block[2]}```\n")]
            by_prompt = {prompt: [line.strip()[2:] for line in lines
                                  if line.strip().startswith(prompt)] for prompt in ("$ ", "# ")}
            if by_prompt["$ "]:
                yield where, ["\n".join(by_prompt["$ "])]
            elif by_prompt["# "]:  # a comment, or root's prompt
                yield where, [block[2], "\n".join(by_prompt["# "])]
            else:
                yield where, [block[2]]


def commands(line):
    """The commands of a line, as lists of words."""
    line = re.sub(r"^\s*[$#] (?=\S)", "", line)
    words = shlex.shlex(line, posix=True, punctuation_chars=";|&<>()")
    words.whitespace_split = True
    found = [[]]
    try:
        for word in words:
            if set(word) <= set(";|&<>()"):
                found.append([])
            else:
                found[-1].append(word)
    except ValueError:
        return []  # output, with a quote in it
    return [each[each[0] == "sudo":] for each in found if each]


def in_blocks():
    for path in documents():
        for number, line in blocks(path.read_text(encoding="utf-8")):
            for words in commands(line):
                yield f"{path.relative_to(ROOT)}:{number}", words


def in_sentences():
    for path in documents():
        text = re.sub(r"^ *```.*?^ *```", lambda block: "\n" * block[0].count("\n"),
                      path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for span in re.finditer(r"`([^`]+)`", text):
            number = text.count("\n", 0, span.start()) + 1
            for words in commands(span[1].replace("\n", " ")):
                yield f"{path.relative_to(ROOT)}:{number}", words


def in_manual():
    """The commands in the manual's blocks."""
    for path in sorted((ROOT / "docs/man").iterdir()):
        text = path.read_text(encoding="utf-8")
        for block in re.finditer(r"^\.Bd -literal.*\n((?:.*\n)*?)\.Ed$", text, re.MULTILINE):
            number = text.count("\n", 0, block.start(1)) + 1
            shown = block[1].replace("\\e\n", "\\\n")
            for line, held in blocks(f"```\n{shown}```\n"):
                for words in commands(held):
                    yield f"{path.relative_to(ROOT)}:{number + line - 2}", words


def synopsis():
    """The commands of emuvctl(1)'s synopsis: a verb's words, and its options."""
    text = (ROOT / "docs/man/emuvctl.1").read_text(encoding="utf-8")
    text = text.partition(".Sh SYNOPSIS\n")[2].partition("\n.Sh ")[0]
    for each in text.split(".Nm\n")[1:]:
        verbs = re.search(r"^\.Cm (.+)$", each, re.MULTILINE)
        options = [("--" if name.startswith("-") else "-") + name.lstrip("-")
                   for name in re.findall(r"\bFl (-?[a-z0-9V][a-z0-9-]*)", each)]
        yield (verbs[1].split() if verbs else []), options


class DocumentedCommandsTest(unittest.TestCase):
    emuvctl = None
    texts = {}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        machine = self.folder / "machine"
        shutil.copytree(HERE / "machine", machine)
        for name in ("run/emuv/names", "library", "photos", "home/models/mistral-7b"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "library/libcuda.so.1").touch()
        (self.folder / "photos/1.jpg").touch()
        (self.folder / "prompts.txt").write_text("a\n")
        (self.folder / "train.log").write_text(OUT_OF_MEMORY)
        (self.folder / "home/models/mistral-7b/config.json").write_text(json.dumps(MODEL))
        shutil.copytree(self.folder / "home/models/mistral-7b", self.folder / "checkpoint")
        for name in ("trace", "before", "after"):
            shutil.copy(HERE / "traces/step.json", self.folder / f"{name}.json")
        shutil.copy(HERE / "tapes/step.tape", self.folder / "train.tape")
        # As many instances as the documents have names for.
        instances = machine / "sys/class/emuv"
        for number, name in enumerate(("small", "large", "small-a", "small-b", "small-c",
                                       "team-a", "lab"), 2):
            shutil.copytree(instances / "emuv1", instances / f"emuv{number}")
            uuid = f"00000000-0000-4000-8000-00000000000{number}"
            (instances / f"emuv{number}/uuid").write_text(uuid + "\n")
            (self.folder / "run/emuv/names" / name).write_text(uuid + "\n")
        config = (HERE / "profiles.conf").read_text()
        (self.folder / "profiles.conf").write_text(
            config + "\n[team-a]\ngpu_model=4070\nvirtual_vram_mb=256\n"
            "physical_vram_gb=12\n")
        self.environment = {name: text for name, text in os.environ.items()
                            if not name.startswith("EMUV_")}
        self.environment.update(
            LC_ALL="C", HOME=str(self.folder / "home"),
            XDG_STATE_HOME=str(self.folder / "state"),
            EMUV_SYSFS_ROOT=str(machine / "sys"), EMUV_PROC_ROOT=str(machine / "proc"),
            EMUV_DEV_ROOT=str(self.folder / "dev"), EMUV_RUN_ROOT=str(self.folder / "run"),
            EMUV_ETC_ROOT=str(self.folder / "etc"),
            EMUV_CONFIG=str(self.folder / "profiles.conf"))
        self.call("estimate", "gpt2", "--save")

    def call(self, *words):
        return subprocess.run([self.emuvctl, *words], cwd=self.folder, env=self.environment,
                              input=OUT_OF_MEMORY, text=True, check=False,
                              capture_output=True, timeout=600)

    def help_of(self, *verbs):
        if verbs not in self.texts:
            done = self.call(*verbs, "--help")
            self.texts[verbs] = done.stdout if done.returncode == 0 else ""
        return self.texts[verbs]

    def listed(self, heading, *verbs):
        """The verbs that a help lists from this heading on."""
        return re.findall(r"^  ([a-z][a-z-]+)",
                          self.help_of(*verbs).partition(f"\n{heading}:")[2], re.MULTILINE)

    def verb_of(self, words):
        """The verb of a command, of two words where it has verbs of its own."""
        if words[0] == "help":
            return self.verb_of(words[1:]) if words[1:] else ""
        below = re.search(r"^Usage: emuvctl \S+ VERB", self.help_of(words[0]), re.MULTILINE)
        return " ".join(words[:2 if below else 1])

    def assert_known(self, words):
        """The verb and its options are in the help."""
        if not words or words[0].startswith("-"):
            verb, rest = "", words
        else:
            verb, rest = self.verb_of(words), words
        text = self.help_of(*verb.split())
        self.assertTrue(text, f"there is no verb '{verb}'")
        for word in rest[:rest.index("--")] if "--" in rest else rest:
            option = word.partition("=")[0]
            if re.fullmatch(r"--?[a-z0-9V][a-z0-9-]*", option):
                self.assertRegex(text, rf"(?<![\w-]){re.escape(option)}(?![\w-])")

    def assert_runs(self, words):
        verb = self.verb_of(words)
        if verb in STAYS or "-i" in words or "model.gguf" in words:
            return  # it would stay, or want a large file
        count = len(verb.split())
        more = ["--dry-run"] if verb in CHANGES and "--dry-run" not in words else []
        if verb in OF_LIBRARY and "--library" not in words:
            more += ["--library", "library"]
        if verb in ("create", "define") and not {"--gpu-model", "--profile", "--from"} & {*words}:
            more += ["--gpu-model", "4070"]  # of the card that a reader has
        rest = [str(self.folder / "home" / word[2:]) if word.startswith("~/") else
                str(os.getpid()) if word == "$" else word for word in words[count:]]
        done = self.call(*words[:count], *more, *rest)
        if done.returncode == 1 and re.search(OF_THIS_MACHINE, done.stderr):
            return
        self.assertNotIn("Try 'emuvctl", done.stderr)
        self.assertIn(done.returncode, (0, 1) if verb in MAY_FAIL else (0,),
                      done.stdout + done.stderr)

    def check(self, shown, run):
        count = 0
        for where, words in shown:
            if words[0] != "emuvctl":
                continue
            count += 1
            with self.subTest(where=where, command=shlex.join(words)):
                self.assert_known(words[1:])
                if run:
                    self.assert_runs(words[1:])
        return count

    def test_those_in_blocks_run(self):
        self.assertGreater(self.check(in_blocks(), run=True), 60)

    def test_blocks_are_what_a_shell_can_read(self):
        count = 0
        for where, texts in scripts():
            count += 1
            with self.subTest(where=where):
                done = [subprocess.run(["bash", "-n"], input=text, env=self.environment, text=True,
                                       check=False, capture_output=True) for text in texts]
                self.assertTrue(any(each.returncode == 0 for each in done),
                                f"{done[-1].stderr}(a block that is no shell's has a language, "
                                "as ```text)")
        self.assertGreater(count, 60)

    def test_those_in_sentences_have_words_that_there_are(self):
        self.assertGreater(self.check(in_sentences(), run=False), 60)

    def test_those_in_the_help_run(self):
        shown = []
        for verb in self.listed("Module"):
            for each in [(verb,), *((verb, name) for name in self.listed("Verbs", verb))]:
                for line in self.help_of(*each).splitlines():
                    if re.match(r"  .*\bemuvctl ", line):
                        shown += [(f"{' '.join(each)} --help", words)
                                  for words in commands(line.strip()) if "..." not in words]
        self.assertGreater(self.check(shown, run=True), 20)

    def verbs(self):
        """All verbs, as lists of words."""
        for verb in self.listed("Module"):
            below = self.listed("Verbs", verb)
            yield from ([verb, each] for each in below) if below else [[verb]]

    def test_those_in_the_manual_run(self):
        self.assertGreater(self.check(in_manual(), run=True), 6)

    def test_the_manual_has_each_verb_and_no_option_that_it_lacks(self):
        told = list(synopsis())
        text = (ROOT / "docs/man/emuvctl.1").read_text(encoding="utf-8")
        for verb in self.verbs():
            with self.subTest(verb=verb):
                self.assertIn(verb, [words[:len(verb)] for words, _ in told])
                self.assertTrue(
                    re.search(rf"(?m)^\.It Cm (.* , )?{' '.join(verb)}( |$)", text),
                    "it has no entry")
        for words, options in told:
            with self.subTest(verb=words, options=options):
                self.assert_known([*words, *options])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emuvctl", required=True)
    options, rest = parser.parse_known_args()
    DocumentedCommandsTest.emuvctl = pathlib.Path(options.emuvctl).resolve()
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
