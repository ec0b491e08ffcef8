"""The documents: lines that fit, links that lead somewhere, nothing said twice, and what docs/paper-map.md promises."""

import ast
import json
import re
import shlex
from pathlib import Path

import pytest
import typer

from hatch_build import page
from rlvr_dir.cli import app
from rlvr_dir.cli.sweep import read
from rlvr_dir.results.answer import READING
from rlvr_dir.sweep import sweeps_dir

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("reports/*.md")]
)
WIDTH = 120
LINK = re.compile(r"\[[^\]]*\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")


def prose(text):
    """Lines that can be broken, with their numbers: no table, no code, no picture, more than one word."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        start = line.lstrip()
        fenced ^= start.startswith("```")
        unbroken = start.startswith(("|", "![", "#", "<")) or " " not in line.strip(" -*")
        if not (fenced or unbroken or line.startswith("    ")):
            yield number, line


def anchors(path):
    """The names by which a page's headings can be linked to, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_lines_wrap(name):
    long = [number for number, line in prose((ROOT / name).read_text()) if len(line) > WIDTH]
    assert long == [], f"{name}: lines of more than {WIDTH} characters"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    for target, anchor in LINK.findall((ROOT / name).read_text()):
        page = (ROOT / name).parent / target if target else ROOT / name
        assert page.exists(), f"{name} links to {target}"
        assert not anchor or page.suffix != ".md" or anchor in anchors(page), f"{name} links to {target}#{anchor}"


def sentences(text):
    """Yield the sentences of a page, in prose and in tables, as words; those of eight words and more."""
    text = re.sub(r"^ {4}.*$", "", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "", text)
    for sentence in re.split(r"(?<=[.:;?!])\s|\||\n\s*\n|\n\s*[-*] ", text):
        words = tuple(re.findall(r"\w+", sentence.lower()))
        if len(words) >= 8:
            yield words


def test_no_sentence_stands_on_two_pages():
    """A page links to what another one says."""
    pages: dict[tuple[str, ...], set[str]] = {}
    for name in ["README.md", "CONTRIBUTING.md", *(name for name in DOCUMENTS if name.startswith("docs/"))]:
        for words in sentences((ROOT / name).read_text()):
            pages.setdefault(words, set()).add(name)
    assert {" ".join(words): sorted(names) for words, names in pages.items() if len(names) > 1} == {}


README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("repository", ["", "https://example.org/o/rlvr-dir"])
def test_the_index_page_has_no_relative_link(repository):
    made = page(README, repository, "1.2.3")
    links = re.findall(r"\]\(([^)\s]+)\)", made)
    assert all(link.startswith(("https://", "#")) for link in links)
    assert (f"{repository}/raw/v1.2.3/docs/playground.png" in links) == bool(repository)


TEXT = (ROOT / "docs" / "paper-map.md").read_text()
SPANS = re.findall(r"`([^`]+)`(?: \(((?:`\w+`(?:, )?)+)\))?", TEXT)
COMMANDS = sorted({span for span, _ in SPANS if span.split()[0] in ("rlvr-dir", "report", "analyse")})
FILES = [(span, re.findall(r"\w+", names)) for span, names in SPANS if re.fullmatch(r"[\w/]+\.(py|yaml)", span)]
PACKAGE = ROOT / "harness" / "rlvr_dir"
SWEEPS = {path.stem for path in sweeps_dir().glob("*.yaml")}


def places(name):
    """Where a file may lie: it is named from the root, from the package, or as a neighbour of Algorithm 1."""
    return [path for path in (ROOT / name, PACKAGE / name, PACKAGE / "policy" / name) if path.is_file()]


@pytest.mark.parametrize(("name", "defined"), FILES, ids=lambda value: value if isinstance(value, str) else "")
def test_files_are_there_and_define_what_they_are_named_for(name, defined):
    [path] = places(name)
    if defined:
        there = {each.name for each in ast.parse(path.read_text()).body if isinstance(each, ast.FunctionDef)}
        assert [each for each in defined if each not in there and f'"{each}"' not in path.read_text()] == []


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_take_what_is_written(words):
    """Every command, option and sweep of a line is known; nothing is run."""
    arguments = [word for word in shlex.split(words.replace("PAIR", "--pair tiny")) if word not in ("rlvr-dir", "…")]
    command = typer.main.get_command(app)
    while hasattr(command, "list_commands"):
        command = command.get_command(command.context_class(command), arguments.pop(0))
    if arguments and arguments[-1].startswith("--") and arguments[-1] != "--paper":
        arguments.append("PLACE")  # the page names the option alone
    context = command.make_context(command.name, list(arguments), resilient_parsing=True)
    parsed, rest, _ = command.make_parser(context).parse_args(list(arguments))
    assert not rest or command.name == "report", f"{words}: {rest} is left over"
    assert parsed or command.name in ("report", "tokens", "curves")
    if words.startswith("rlvr-dir sweep run"):
        assert read(arguments[0], []).name == arguments[0]
    for name in re.findall(r"runs/sweeps/(\w+)", words):
        assert name in SWEEPS


def test_the_example_of_the_python_page_prints_what_stands_below_it(tmp_path, monkeypatch, capsys):
    from rlvr_dir import tokens

    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/python.md").read_text()
    names: dict[str, object] = {}
    printed = []
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(code, names)
        printed.append(capsys.readouterr().out)
    assert printed[0] == re.search(r"```text\n(.*?)```", page, re.DOTALL).group(1)
    differences = names["differences"]
    assert ((differences["low"] > 0) | (differences["high"] < 0)).all()  # each is seen
    frame, every = names["frame"], names["every"]
    assert frame.groupby("setting")["correct"].mean().to_dict() == {one.label: one.avg for one in names["results"]}
    by = every.groupby(["decoding", "problem", "sample"], observed=True)
    counted = frame.set_index(["decoding", "problem", "sample"])
    assert by.size().to_dict() == counted["tokens"].to_dict()
    assert by["flagged"].sum().to_dict() == counted["replaced"].to_dict()
    assert by["changed"].sum().to_dict() == counted["changed"].to_dict()
    assert every.groupby(["record", "problem", "sample"], observed=True)["position"].first().eq(0).all()
    for record in (tmp_path / "runs/records").glob("*/tiny_medium"):
        part = tokens(record)
        assert part["text"].tolist() == every[every["record"] == part["record"][0]]["text"].tolist()
        assert part["token"].tolist() == every[every["record"] == part["record"][0]]["token"].tolist()


def test_the_notebook_prints_what_stands_in_it(tmp_path, monkeypatch, capsys):
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "examples/first_look.ipynb").read_text())["cells"]
    names: dict[str, object] = {}
    drawn = 0
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
            printed = ["".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream"]
            assert capsys.readouterr().out == "".join(printed)
            figures = [output for output in cell["outputs"] if "image/png" in output.get("data", {})]
            assert len(figures) == len(plt.get_fignums())
            drawn += len(figures)
            plt.close("all")
    assert drawn == 1
    assert len(cells) <= 14


def test_pages_agree_on_how_long_the_tests_take():
    """A number is said with its command, on the same line or the next: `make test` … 8 minutes."""
    taken: dict[str, set[str]] = {"test": set(), "test-all": set()}
    for name in ("README.md", "CONTRIBUTING.md", "docs/install.md", "Makefile"):
        text = re.sub(r"^(test(?:-all)?):", r"make \1:", (ROOT / name).read_text(), flags=re.MULTILINE)
        for command, minutes in re.findall(r"make (test(?:-all)?)\b(?:(?!make )[^|]|\|)*?([\d.–]+)\s+minutes", text):
            taken[command].add(minutes)
    assert taken == {"test": {"8–16"}, "test-all": {"22–37"}}


def test_the_guide_to_reading_is_the_same_on_the_page_in_a_report_and_in_the_terminal():
    """The table of docs/decoding.md has the rows that a report and `eval --controls` print."""
    page = (Path(__file__).parents[1] / "docs/decoding.md").read_text(encoding="utf-8")
    table = page[page.index("| If you see |") :].split("\n\n")[0].splitlines()[2:]
    rows = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table]
    plain = [tuple(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell) for cell in row) for row in rows]
    assert [seen for seen, _ in plain] == [seen for seen, _ in READING]
    assert [means for _, means in plain[:-1]] == [means for _, means in READING[:-1]]  # the last one has a link
