#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/check-prose names long sentences and clauses at a beginning, no others."""

import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG = "One" + " word" * 25 + "."  # 26 words
RIGHT = "One" + " word" * 24 + "."


class CheckProseTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_with(self, *arguments):
        return subprocess.run([ROOT / "scripts/check-prose", *arguments],
                              cwd=self.folder, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def lines_of(self, text, name="a.md"):
        """The numbers of the lines at which findings are."""
        (self.folder / name).write_text(text, encoding="utf-8")
        done = self.run_with(name)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [int(line.split(":")[1]) for line in done.stdout.splitlines()]

    def test_a_sentence_of_26_words_is_named_with_its_line(self):
        (self.folder / "a.md").write_text(f"Short.\n\nA sentence.\n\n{LONG}\n")
        found = self.run_with("a.md").stdout
        self.assertRegex(found, r"^a\.md:5: a sentence of 26 words: One word .*\.\.\.\n$")

    def test_sentences_of_25_words_are_not_named(self):
        self.assertEqual(self.lines_of(f"{RIGHT} {RIGHT}\n{RIGHT}\n"), [])

    def test_words_are_counted_over_lines(self):
        self.assertEqual(self.lines_of(LONG.replace(" ", "\n")), [1])
        self.assertEqual(self.lines_of("// " + LONG.replace(" ", "\n// "), "a.cpp"), [1])

    def test_code_is_one_word_and_a_links_target_is_none(self):
        self.assertEqual(self.lines_of(f"`{'a ' * 30}` is code.\n"), [])
        self.assertEqual(self.lines_of(f"[A link]({'a/' * 9}#b-c) {'word ' * 23}.\n"), [])

    def test_a_clause_at_the_beginning_is_named(self):
        for word in ("What", "Who", "Where", "Whether", "Whatever", "Whoever", "Wherever"):
            with self.subTest(word):
                self.assertEqual(self.lines_of(f"It is so. {word} it is, is so.\n"), [1])
                self.assertEqual(self.lines_of(f"It is so: **{word}** is so.\n"), [1])

    def test_questions_and_other_beginnings_are_not_named(self):
        self.assertEqual(self.lines_of(
            "What is it? If it is so, it is what it is. Whose is it? When it is "
            "so, it is where it was. Which one it is, it says. Whatsoever.\n"), [])

    def test_items_cells_and_paragraphs_are_apart(self):
        half = "one" + " word" * 19
        self.assertEqual(self.lines_of(
            f"{half}:\n- {half}\n- {half}\n1. {half}\n\n| {half} | {half} |\n"), [])
        self.assertEqual(self.lines_of(f"- short\n- {LONG}\n\n| short | {LONG} |\n"), [2, 4])

    def test_headings_and_code_of_documents_are_left_alone(self):
        self.assertEqual(self.lines_of(
            f"# What it is\n\n```\n{LONG}\n```\n<!-- {LONG} -->\n"), [])

    def test_comments_of_c_and_nothing_else_are_looked_at(self):
        self.assertEqual(self.lines_of(
            f'const char *a = "// What it is"; // short\n'
            f'const char *b = R"(/* {LONG} */)";\n'
            f"int c = 1'000; // What it counts.\n"
            f"/// @param what  Where it is.\n"
            f"/// @return {LONG}\n"
            f"/**\n * Short.\n *\n * {LONG}\n */\n", "a.cpp"), [3, 4, 5, 9])

    def test_comments_at_other_columns_are_other_comments(self):
        half = "one" + " word" * 19
        self.assertEqual(self.lines_of(
            f"int a; // {half}\n// {half}\nint b; // {half}\n", "a.hpp"), [])

    def test_examples_and_columns_in_comments_are_apart(self):
        half = "one" + " word" * 19
        self.assertEqual(self.lines_of(
            f"// {half}\n//     {half}\n// a{'  ' * 4}{half}\n// b{'  ' * 4}{half}\n",
            "a.c"), [])

    def test_the_manuals_marks_count_once_and_lists_of_them_too(self):
        words = ".Sh DESCRIPTION\n" + "word\n" * 23
        more = words + "word\n"
        self.assertEqual(self.lines_of(
            f"{words}.Fl -size Ar SIZE\n.Cm a , b No and Cm c .\n", "a.1"), [])
        self.assertEqual(self.lines_of(
            f"{more}.Li a ,\n.Li b\n(an aside of some words),\n.Li c ,\n.Li d .\n", "a.1"), [])
        self.assertEqual(self.lines_of(
            f"{words}.Li a\nand\n.Li b ,\nword .\n", "a.1"), [2])

    def test_the_manuals_own_name_is_a_word_and_a_stop_that_is_shown_ends_nothing(self):
        words = ".Sh DESCRIPTION\n" + "word\n" * 24
        self.assertEqual(self.lines_of(f"{words}.Nm\nword.\n", "a.1"), [2])
        self.assertEqual(self.lines_of(f"{words}.Ql \\&!\nword.\n", "a.1"), [2])

    def test_lines_of_the_manual_that_go_on_are_counted(self):
        self.assertEqual(self.lines_of(
            ".Sh DESCRIPTION\n.Ev A ,\\\nB\n.Pp\nWhere it is.\n", "a.1"), [5])

    def test_the_manuals_items_are_apart_and_its_synopsis_and_blocks_are_no_prose(self):
        half = "word " * 14 + "\n"
        self.assertEqual(self.lines_of(
            f".Sh NAME\n{half}{half}.Sh SYNOPSIS\n{half}{half}.Sh EXAMPLES\n{half}"
            f".It Fl x Ar Y\n{half}.Bd -literal\n{half}{half}.Ed\n{half}.Pp\n"
            "Where it is.\n", "a.4"), [17])

    def test_licences_are_no_prose(self):
        self.assertEqual(self.lines_of(
            f"// SPDX-License-Identifier: MIT\n// {RIGHT}\n", "a.h"), [])
        self.assertEqual(self.lines_of(
            "# SPDX-License-Identifier: MIT\n# What it is.\n", "a.sh"), [2])

    def test_comments_of_scripts_have_lines_of_their_own(self):
        self.assertEqual(self.lines_of(
            f"#!/bin/sh\n# What it is.\necho '# What' # Where it is.\n    # {LONG}\n",
            "script"), [2, 4])

    def test_messages_of_c_are_looked_at(self):
        self.assertEqual(self.lines_of(
            f'say("short");\nsay("{LONG}");\nsay("Where it is, is not known here.");\n'
            f'say("where it is, is not known here");\nsay(R"({LONG})");\n', "a.cpp"),
            [2, 3, 4, 5])

    def test_literals_that_are_joined_are_one_message(self):
        half = "one" + " word" * 12
        for between in ('"\n    "', '"  // why\n"', '" PRIu64 "', ' " + size(of) + " ',
                        '" << size << "', '" \\\n"'):
            with self.subTest(between):
                self.assertEqual(self.lines_of(
                    f'\nsay("{half} {between} {half}");\n', "a.cpp"), [2])
        for between in ('", "', '"); // why\nsay("', '"); /* why */ say("', '", // why\n"'):
            with self.subTest(between):
                self.assertEqual(self.lines_of(
                    f'say("{half} {between} {half}");\n', "a.cpp"), [])

    def test_messages_are_read_as_they_are_shown(self):
        half = "one" + " word" * 13
        self.assertEqual(self.lines_of(
            f'say("{half}\\n{half}");\nsay("{half}\\n\\n{half}");\n'
            f'say("{half} \\"quoted\\" {half}");\n', "a.cpp"), [1, 3])

    def test_values_in_messages_are_words(self):
        for value in ("{}", "{:.2f}", "%llu", "%*.3s"):
            with self.subTest(value):
                self.assertEqual(self.lines_of(
                    f'say("{value}{" word" * 25}");\n', "a.cpp"), [1])
                self.assertEqual(self.lines_of(
                    f'say("{value}{" word" * 24}");\n', "a.cpp"), [])

    def test_examples_in_messages_are_apart(self):
        half = "  emuvctl" + " word" * 14
        self.assertEqual(self.lines_of(
            f'say("Short.\\n"\n"{half}\\n"\n"{half}\\n");\n', "a.cpp"), [])

    def test_literals_that_are_no_sentences_are_left_alone(self):
        headers = "Name: value\\r\\n" * 14
        self.assertEqual(self.lines_of(
            f'say("[{LONG}");\nsay("Where it is");\nchar c = \'"\';\n'
            f'say("HTTP/1.1 200\\r\\n{headers}");\n', "a.cpp"), [])

    def test_messages_of_shell_scripts_are_looked_at(self):
        (self.folder / "tests").mkdir()
        text = (f"#!/bin/bash\n: '{LONG}'\ndie \"{LONG}\"\nsay 'short'\n"
                "printf '%s: %s\\n' \"where it is, is not known here\"\n"
                f"# it's \"short\n[[ $a == \\\" ]] || die \"{RIGHT}\"\n")
        for name in ("script", "tests/run", "lib.sh"):
            with self.subTest(name):
                self.assertEqual(self.lines_of(text, name), [2, 3, 5])
        self.assertEqual(self.lines_of(text.replace("bash", "fish"), "other"), [])

    def test_values_of_a_shell_are_words_and_quotes_side_by_side_are_one(self):
        half = "one" + " word" * 12
        for value in ("$a", "${a:-b c d}", "$(run \"$a b\" c (d))", "$(run 'a)')"):
            with self.subTest(value):
                self.assertEqual(self.lines_of(
                    f'#!/bin/sh\ndie "{half} {value} {half}"\n'
                    f'die "{RIGHT[:-6]} {value}"\n', "script"), [2])
        self.assertEqual(self.lines_of(
            f"#!/bin/sh\ndie \"{half} \"' {half}'\ndie \"{half}\" '{half}'\n"
            f"bash -c '{LONG}'\n", "script"), [2])

    def test_a_shells_documents_are_looked_at_if_they_are_shown(self):
        for start, found in (("cat <<'END'", [5]), ("  cat >&2 <<-END", [5]),
                             ("cat >file <<END", []), ("cat <<END >file", []),
                             ("python3 - <<END", [])):
            with self.subTest(start):
                self.assertEqual(self.lines_of(
                    f"#!/bin/sh\n{start}\nUsage: a \"b'\n\n{LONG}\nEND\n"
                    f"echo 'Where it is'\n", "script"), found)

    def test_options_in_a_shells_documents_are_apart_and_go_on(self):
        half = "one" + " word" * 14
        self.assertEqual(self.lines_of(
            f"#!/bin/sh\ncat <<END\n{half}\n\n  --a  {half}\n  --b B\n"
            f"{' ' * 8}{half}\n  --c  {half}\n{' ' * 8}{half}\n  example {LONG}\n"
            f"{half}\nEND\n", "script"), [8])

    def test_messages_and_docstrings_of_python_are_looked_at(self):
        self.assertEqual(self.lines_of(
            f'"""What it is."""\n\n\ndef f():\n    """Short.\n\n    {LONG}\n    """\n'
            f'    say("{LONG}")\n    say("one"\n        "{LONG}")\n'
            f'    say(f"{{f}}{" word" * 25}")\n'
            f'    say("what it is, is not known here")\n    say("Where it is")\n',
            "a.py"), [1, 7, 9, 10, 12, 13])
        self.assertEqual(self.lines_of(
            '#!/usr/bin/env python3\n"""What it is."""\n', "script"), [2])

    def test_python_that_cannot_be_read_has_comments(self):
        self.assertEqual(self.lines_of("# What it is.\nfor\n", "a.py"), [1])

    def test_what_tests_say_is_left_alone_but_for_docstrings(self):
        (self.folder / "tests").mkdir()
        self.assertEqual(self.lines_of(f'say("{LONG}");\n', "tests/a.cpp"), [])
        self.assertEqual(self.lines_of(
            f'"""What it is."""\nsay("{LONG}")\n', "tests/a.py"), [1])

    def test_help_is_given(self):
        done = self.run_with("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("at most 25 words", done.stdout)


if __name__ == "__main__":
    unittest.main()
