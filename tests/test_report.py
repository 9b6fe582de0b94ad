"""Reports: numbers as they read, one offline page, the terminal, figures, the common look."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from rich.console import Console

from rmdn.errors import InputError
from rmdn.experiments import static, table1, table3
from rmdn.report import Cell, Claim, Picture, Report, Section, Table, numbers, pictures, style, terminal, write
from rmdn.report.html import render
from rmdn.report.parts import PNG

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"
NASTY = "<script>alert(1)</script> & \"quotes\" 'n' {{ braces }} [bold]"


def figure(points=10, size=(4.0, 3.0)):
    from matplotlib.figure import Figure

    with style.drawing():
        drawn = Figure(figsize=size)
        x = np.linspace(0, 1, points)
        drawn.subplots().plot(x, np.sin(40 * x), "o")
    return drawn


def table(*rows, columns=("Method", "ACCd"), **options):
    return Table("A caption", columns, rows or [["Plain", Cell(0.2)]], **options)


def section(key="table1", **options):
    return Section(key, f"Title of {key}", **options)


def report(*sections, **options):
    return Report(**{"title": "A title", "summary": "A summary", "facts": {"Seeds": "3"}, **options, "sections": sections})


class Page(HTMLParser):
    """The tags, attributes, anchors and text of a page, and whether its tags close as they open."""

    VOID = frozenset({"meta", "img", "br", "hr", "link", "input"})

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.ids, self.words, self.open = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def values(self, tag, name):
        return [value for of, called, value in self.attributes if (of, called) == (tag, name)]


def printed(made, width=100):
    file = io.StringIO()
    terminal(made, Console(width=width, file=file))
    return file.getvalue()


# Numbers


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.1236, 3, "0.124"),
        (-0.5, 1, f"{MINUS}0.5"),
        (-0.0001, 2, "0.00"),
        (None, 3, DASH),
        (float("nan"), 3, DASH),
        (3, 0, "3"),
    ],
)
def test_a_number_has_its_digits_a_real_minus_and_a_dash_for_none(value, digits, text):
    assert numbers.number(value, digits) == text


@pytest.mark.parametrize(
    ("cell", "ours", "published", "difference"),
    [
        (Cell(0.12, 0.0304), "0.120 ± 0.030", "", ""),
        (Cell(0.12, 0.03, 0.02, 0.01, digits=2), "0.12 ± 0.03", "0.02 ± 0.01", "+0.10"),
        (Cell(0.12, None, 0.2, 0.05), "0.120", "0.20 ± 0.05", f"{MINUS}0.080"),
        (Cell(None, None, -0.0037, 0.0002), DASH, f"{MINUS}0.0037 ± 0.0002", ""),
        (Cell(None, 0.1), DASH, "", ""),
        (Cell(71.5, None, 100 * 0.0071), "71.500", "0.71", "+70.790"),
        (Cell(0.5, None, 1e-7), "0.500", "0.0000001", "+0.500"),
    ],
)
def test_a_cell_reads_mean_and_spread_and_published_digits_as_published(cell, ours, published, difference):
    assert (numbers.ours(cell), numbers.published(cell), numbers.difference(cell)) == (ours, published, difference)


# The page


def test_text_is_shown_and_never_run():
    made = report(
        section(
            text=NASTY,
            parts=[Table(NASTY, [NASTY, "b"], [[NASTY, NASTY]], [NASTY]), Picture(NASTY, figure(), NASTY)],
            claims=[Claim(NASTY, "holds", NASTY)],
            command=NASTY,
            warnings=[NASTY],
        ),
        title=NASTY,
        summary=NASTY,
        facts={NASTY: NASTY},
    )
    page = Page(render(made))
    assert "script" not in page.tags
    assert page.text.count(NASTY) >= 13
    assert NASTY in page.values("img", "alt")
    assert printed(made).count("{{ braces }} [bold]") >= 10


def test_the_page_is_one_file_that_loads_nothing(tmp_path):
    text = render(report(section(parts=[table(), Picture("Drawn", figure(), "alt")])))
    page = Page(text)
    assert not {"script", "link", "iframe", "object", "base"} & set(page.tags)
    assert all(address.startswith("data:image/") for address in page.values("img", "src"))
    assert all(address.startswith("#") for address in page.values("a", "href"))
    css = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    assert "url(" not in css
    assert "@import" not in css
    assert "default-src 'none'" in text
    path = write(report(section()), tmp_path / "new" / "folder" / "page.html")
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]
    assert path.read_text("utf-8") == render(report(section()))


def test_every_link_of_the_page_has_its_anchor():
    claims = [Claim("It is so", "holds", "0 < 1")]
    page = Page(
        render(report(section("one", claims=claims), section("two", parts=[table()], claims=claims), section("three")))
    )
    anchors = {address.removeprefix("#") for address in page.values("a", "href")}
    assert {"one", "two", "three", "report.claims"} <= anchors <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    labels = {label for _, name, label in page.attributes if name == "aria-labelledby"}
    assert labels <= set(page.ids)


def test_claims_are_listed_ahead_where_more_than_one_section_has_some():
    one = section("one", claims=[Claim("First claim", "holds", "why 1")])
    two = section(
        "two", claims=[Claim("Second claim", "cannot tell", "why 2"), Claim("Third claim", "does not hold", "why 3")]
    )
    text = Page(render(report(one, two))).text
    assert "3 claims: 1 ✓ holds , 1 ✗ does not hold , 1 ? cannot tell ." in text
    assert text.index("Third claim") < text.index("why 1")
    assert "3 claims" not in Page(render(report(two))).text


def test_each_verdict_has_a_mark_and_a_colour_of_its_own():
    verdicts = ["holds", "does not hold", "cannot tell"]
    made = report(section(claims=[Claim(f"Claim {verdict}", verdict, "why") for verdict in verdicts]))
    text = render(made)
    for verdict, mark in zip(verdicts, "✓✗?", strict=True):
        name = verdict.replace(" ", "-")
        assert f'<span class="verdict {name}"><span aria-hidden="true">{mark}</span> {verdict}</span>' in text
        assert f"{mark} {verdict}: Claim {verdict} (why)" in printed(made)


def test_ours_stands_over_the_published_and_the_best_is_bold():
    rows = [["Plain", Cell(0.3, 0.01, 0.28, 0.02)], ["Ours", Cell(0.01, 0.002, best=True)], ["Words", "none"]]
    page = render(report(section(parts=[table(*rows, notes=["A test under it"])])))
    assert "0.300 ± 0.010 0.28 ± 0.02 (+0.020) Ours" in Page(page).text
    assert "<small><span>0.28 ± 0.02</span>" in page
    assert re.findall("<strong>(.*?)</strong>", page) == ["0.010 ± 0.002"]
    assert "Lower, small: published" in page
    assert "Bold: best of ours" in page
    assert "A test under it" in page
    other = render(report(section(parts=[table()])))
    assert "published" not in other
    assert "Bold" not in other


def test_column_groups_span_their_columns():
    grouped = table(
        ["a", Cell(1.0), Cell(2.0), Cell(3.0)], columns=["", "x", "y", "z"], column_groups=[("", 1), ("Both", 2)]
    )
    page = render(report(section(parts=[grouped])))
    assert '<th scope="colgroup" colspan="2"><span>Both</span></th>' in page
    assert '<td colspan="1"></td>' in page


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (section(command="rmdn reproduce table1"), "There are no runs for this section yet."),
        (section(parts=[table(["a", Cell(None)])]), "There are no runs for this section yet."),
        (section(parts=[table(["a", Cell(None)], ["b", Cell(1.0)])]), "1 of 2 numbers have no run yet"),
        (section(parts=[table()]), ""),
        (section(text="Words alone"), ""),
    ],
    ids=["nothing", "empty table", "gaps", "all there", "words"],
)
def test_what_is_missing_is_said_in_a_sentence(made, sentence):
    assert made.missing().startswith(sentence)
    assert bool(made.missing()) == bool(sentence)
    for shown in (Page(render(report(made))).text, printed(report(made))):
        assert sentence in shown
        assert ("Warning" in shown or "! " in shown) == bool(sentence)


def test_paragraphs_are_parted_by_empty_lines():
    page = render(report(section(text="First one.\n\nSecond one.\n\n")))
    assert "<p>First one.</p>\n<p>Second one.</p>" in page
    assert "<p></p>" not in page


def test_the_same_report_is_the_same_page_to_the_byte():
    first, again = (render(report(section(parts=[table(), Picture("Drawn", figure(), "alt")]))) for _ in range(2))
    assert first == again


# Pictures


def test_a_small_figure_is_drawn_by_lines_and_a_large_one_by_points():
    small, large = pictures.image(figure(size=(4.0, 3.0))), pictures.image(figure(points=20_000))
    assert small.address.startswith("data:image/svg+xml;base64,")
    assert (small.width, small.height) == (384, 288)
    assert b"<svg" in base64.b64decode(small.address.partition(",")[2])
    assert base64.b64decode(large.address.partition(",")[2]).startswith(PNG)
    assert len(large.address) < pictures.LARGEST_SVG


def test_a_png_goes_in_as_it_is():
    content = PNG + b"more bytes"
    assert base64.b64decode(pictures.image(content).address.partition(",")[2]) == content
    with pytest.raises(InputError, match="no PNG file"):
        Picture("A caption", b"GIF89a", "alt")


# Parts that do not fit


def test_parts_that_do_not_fit_are_refused_by_name():
    with pytest.raises(InputError, match=r"Row 2 of the table 'A caption' has 3 entries; expected 2"):
        table(["a", Cell(1.0)], ["b", Cell(1.0), Cell(2.0)])
    with pytest.raises(InputError, match=r"'A caption' span 3 columns; expected 1"):
        table(column_groups=[("Group", 3)])
    with pytest.raises(InputError, match=r"The verdict 'maybe'.*'holds'"):
        Claim("It is so", "maybe", "why")
    with pytest.raises(InputError, match=r"'1 table'.*expected a letter"):
        section("1 table")
    with pytest.raises(InputError, match="More than one section has the key one"):
        report(section("one"), section("two"), section("one"))


# The terminal


def test_the_terminal_shows_what_the_page_shows():
    rows = [["R-MDN", Cell(0.02, 0.01, 0.03, 0.005)], ["Plain", Cell(None)]]
    text = printed(
        report(
            section(
                text="Some words.",
                parts=[table(*rows, notes=["A note"]), Picture("The caption", figure(), "alt")],
                command="rmdn reproduce table1",
                warnings=["Made from stand-in data."],
            )
        )
    )
    for expected in ("A title", "Seeds: 3", "Some words.", "0.020±0.010", "(0.030±0.005)", "A note", "The caption"):
        assert expected in text
    assert "! Made from stand-in data." in text
    assert "! 1 of 2 numbers" in text
    assert "$ rmdn reproduce table1" in text


@pytest.mark.parametrize("width", [30, 60, 200])
def test_a_wide_table_comes_in_blocks_that_fit_and_no_number_is_cut(width):
    row = [Cell(i / 1000, 0.001, i / 1000 + 0.0005) for i in range(1, 13)]
    columns = ["Method", *(f"c{i}" for i in range(1, 13))]
    text = printed(report(section(parts=[table(["R-MDN", *row], columns=columns)])), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    for i in range(1, 13):
        assert len([line for line in lines if f"0.{i:03d}±0.001" in line]) == 1
    assert text.count("R-MDN") == sum("Method" in line for line in lines)


def test_long_words_over_narrow_columns_stand_in_lines_and_keep_the_columns_together():
    row = [Cell(0.1, 0.01)] * 3
    wide = table(
        ["R-MDN", *row], columns=["Method", "a", "b", "c"], column_groups=[("Data set 1: the confounder changes", 3)]
    )
    lines = printed(report(section(parts=[wide])), 80).splitlines()
    assert any(line.count("0.100±0.010") == 3 for line in lines)
    assert any(line.split() == ["confounder"] * 3 for line in lines)


# The look


def test_methods_of_the_experiments_look_the_same_in_every_figure():
    assert {*table1.METHODS, *table3.METHODS, *static.METHODS} <= set(style.METHODS)
    every = style.looks(style.METHODS)
    for names in (["Plain", "R-MDN"], ["R-MDN", "another", "Plain"], ["Guarded R-MDN"]):
        assert {name: every[name] for name in names if name in every}.items() <= style.looks(names).items()


def test_looks_can_be_told_apart_without_colour():
    names = [*style.METHODS[:9], "mine", "yours", "theirs"]
    looks = style.looks(names)
    assert len({(look.linestyle, look.marker) for look in looks.values()}) == len(names)
    assert len({look.hatch for look in looks.values()}) == len(names)


def test_the_look_ends_with_the_drawing():
    import matplotlib

    before = matplotlib.rcParams["legend.frameon"]
    with style.drawing():
        assert matplotlib.rcParams["legend.frameon"] is False
    assert matplotlib.rcParams["legend.frameon"] == before
