"""The page: complete, escaped, small, and alive in a browser.

The browser is Chromium without a window; where there is none, its tests are skipped.
"""

import base64
import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest

from radial.core.data import BadInput
from radial.core.text import spell_radius
from radial.reports.cells import kind_of, rows_of
from radial.reports.curve import Axes, audit_figure, round_numbers
from radial.reports.page import LARGEST_PAGE, check_folder, render, write_page

CHROMIUM = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)
EVIL = "<script>alert(1)</script>\"'&amp;</title>"
STEPS = 6


def played(attack: str, epsilon: float, mean: float) -> dict[str, Any]:
    return {
        "attack": attack, "radius": epsilon, "settings": attack, "returns": [mean] * 2, "lengths": [int(mean)] * 2,
        "mean": mean, "sem": 0.5, "iqm": mean, "iqm_ci95": [mean - 1, mean + 1], "gap": 6 - mean, "gap_sem": 0.5,
    }  # fmt: skip


def picture(shade: int) -> str:
    """A grey square of 8 × 8, written by hand."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    rows = b"".join(b"\0" + bytes([shade] * 8) for _ in range(8))
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", bytes([0, 0, 0, 8, 0, 0, 0, 8, 8, 0, 0, 0, 0]))
    data += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


def film(steps: int) -> dict[str, Any]:
    """A rendered picture of every second step and of the end, each of another shade."""
    at = [*range(0, steps, 2), steps]
    return {"at": at, "images": [picture(7 * step + steps) for step in at]}


def trace(frames: bool = False) -> dict[str, Any]:
    """An attacked episode of four steps beside a clean one of six."""
    verdicts = ["certified", "unknown", "attacked", "attacked"]
    facts: dict[str, Any] = {
        "attack": "pgd", "radius": 0.1, "discrete": True, "picture": frames, "noticed": 0.1,
        "features": [] if frames else ["angle", EVIL], "actions": ["left", "right"],
        "units": None if frames else [2.0, 1.0], "verdicts": verdicts, "first_changed": 2,
        "clean_action": [0, 1, 0, 1], "action": [0, 1, 1, 0], "scores": [[1.0, 0.0]] * 4, "moved": [[0.5, 0.6]] * 4,
        "lower": [[0.2, -0.1]] * 4, "upper": [[1.1, None]] * 4, "reward": [1.0] * 4, "ended": True,
        "nominal": {"action": [0] * STEPS, "reward": [1.0] * STEPS, "ended": True},
        "pictures": {"clean": film(STEPS), "attacked": film(4), "note": EVIL},
    }  # fmt: skip
    if frames:
        shades = [picture(40 * i) for i in range(STEPS)]
        facts |= {"frames": shades[:4], "shown": shades[:4], "amplified": shades[:4]}
        facts["nominal"]["frames"] = shades
    else:
        facts |= {"raw": [[0.1 * i, 1.0] for i in range(4)], "delta": [[0.1, -0.05]] * 4}
        facts["nominal"]["raw"] = [[0.0, float(i)] for i in range(STEPS)]
    return facts


def audited(name: str = "an agent", frames: bool = False) -> dict[str, Any]:
    bracket = {"lower": 2.0, "upper": 4.0, "gap": 2.0, "kind": "certified", "starts": 2, "says": "exact"}
    level = {
        "radius": 0.1, "env_units": [0.2, 0.1], "attacks": [played("pgd", 0.1, 4.0), played("random", 0.1, 6.0)],
        "worst": "pgd", "worst_return": 4.0, "acr": {"mean": 0.25, "sem": 0.01}, "gwc": None, "awc": None, "box": None,
        "bracket": bracket,
    }  # fmt: skip
    return {
        "format": 1, "agent": name, "about": "made by hand", "env": "Nowhere-v0", "env_options": {}, "engine": {},
        "episodes": 2, "seed": 0, "p": "inf", "bound": "crown", "arithmetic": "outward-rounded", "discrete": True,
        "observation_shape": [2], "units": "network units", "features": ["angle", EVIL], "budget_minutes": None,
        "verdict": "It is not robust.", "nominal": played("none", 0.0, 6.0), "levels": [level],
        "certified_radius": None, "left_out": {"critic": "no critic"}, "notes": [EVIL], "warnings": [EVIL],
        "cuts": ["fgsm at 0.1"], "wall_seconds": 1.0, "trace": trace(frames),
    }  # fmt: skip


def test_it_is_complete_and_asks_nobody() -> None:
    page = render([audited()])
    for words in (
        "It is not robust.",
        "adversarial return",
        "certified",
        "fgsm at 0.1",
        "critic does not apply",
    ):
        assert words in page
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_a_rate_comes_with_the_number_of_distinct_actions() -> None:
    facts = audited()
    assert "distinct)" not in render([facts])  # an older audit
    facts["levels"][0]["acr"]["distinct_actions"] = 1
    assert "(1 distinct)" in render([facts])


def test_everything_is_escaped() -> None:
    page = render([audited(EVIL), audited("b")])
    assert "<script>alert" not in page
    assert page.count("</title>") == 1
    assert page.count("<script") == page.count("</script>") == 3  # two traces and the inspector


def test_it_stays_small() -> None:
    facts = audited(frames=True)
    noise = base64.b64encode(bytes(30_000)).decode()
    for name in ("frames", "shown", "amplified"):
        facts["trace"][name] = [noise] * 200
    for name in ("verdicts", "clean_action", "action", "scores", "moved", "lower", "upper", "reward"):
        facts["trace"][name] = facts["trace"][name][:1] * 200
    assert len(render([facts]).encode()) < LARGEST_PAGE


def test_files_are_written(tmp_path: Path) -> None:
    page = write_page([audited()], tmp_path / "new")
    assert page.name == "audit.html"
    assert json.loads((tmp_path / "new" / "audit.json").read_text())["agent"] == "an agent"
    write_page([audited(), audited("b")], tmp_path / "two")
    assert [path.name for path in (tmp_path / "two").iterdir()] == ["audit.html"]


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "new"):
        with pytest.raises(BadInput, match=f"{place} must be a folder that can be written to"):
            write_page([audited()], place)
        with pytest.raises(BadInput, match=f"out must be a folder that can be written to, got {place}"):
            check_folder(place, "out")
    check_folder(tmp_path / "new" / "deep", "out")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]  # it only tried


def test_the_button_names_the_step_of_the_first_changed_action() -> None:
    assert 'data-step="2">first changed action: step 2</button>' in render([audited()])
    calm = audited()
    calm["trace"]["first_changed"] = None
    assert "disabled>no action was changed</button>" in render([calm])


def test_cells() -> None:
    headings, rows = rows_of(audited())
    assert dict(zip(headings, rows[1], strict=True))["worst attack"] == "pgd"
    assert rows[1][2:7] == ["4.0 ± 0.5", "4.0 (3.0 … 5.0)", "2.0", "2.0", "certified, 2 starts"]
    assert all(len(row) == len(headings) for row in rows)
    assert "lower bound: certified, 2 starts" in audit_figure(audited())
    single = audited()
    single["levels"][0]["bracket"] |= {"lower": 1.99, "starts": 1, "kind": "estimate"}
    assert rows_of(single)[1][1][4:7:2] == ["1.9", "estimate, 1 start"]  # a bound from below is not rounded up
    several = [{"kind": kind, "starts": n} for kind, n in (("certified", 3), ("certified", 2), ("estimate", 5))]
    assert kind_of(*several) == "certified, 2 or 3 starts; estimate, 5 starts"
    assert kind_of({"kind": "none", "starts": 4}) == ""
    assert [spell_radius(each) for each in (3 / 255, 0.05, 0.0)] == ["3/255", "0.05", "0"]


# ---------------------------------------------------------------------------------------------------- in a browser


def browse(page: Path, step: int) -> tuple[str, str]:
    """The document after its scripts have run, and what the console said."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--enable-logging=stderr", "--v=0", "--virtual-time-budget=3000",
         f"--user-data-dir={page.parent / 'profile'}", "--dump-dom", f"file://{page}#step={step}"],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def inspector(document: str) -> dict[str, str]:
    """What a reader sees of the inspector."""
    root = re.search(r'<section class="inspector"[^>]*>', document)
    stage = re.search(r'<div class="stage">(.*?)<div class="panes">', document, re.DOTALL)
    now = re.search(r'<p class="now"[^>]*>(.*?)</p>', document)
    cursor = re.search(r'<rect x="([\d.]+)" y="0" width="3"', document)
    bars = re.search(r'<div class="bars">(.*?)</div>', document, re.DOTALL)
    views = re.search(r'<div class="views">(.*?)<h4', document, re.DOTALL)
    assert root
    assert now
    assert cursor
    assert bars
    assert views
    assert stage
    step, verdict = re.search(r'data-step="(\d+)"', root[0]), re.search(r'data-verdict="(\w+)"', root[0])
    assert step
    assert verdict
    return {
        "step": step[1],
        "verdict": verdict[1],
        "now": now[1],
        "cursor": cursor[1],
        "bars": bars[1],
        "views": views[1],
        "stage": stage[1],
    }


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium to run the page")
@pytest.mark.parametrize("frames", [False, True], ids=["vector", "frames"])
def test_the_slider_moves_everything_together(frames: bool, tmp_path: Path) -> None:
    page = write_page([audited(EVIL, frames)], tmp_path)
    (one, said), (two, more) = browse(page, 0), browse(page, 2)
    assert said + more == ""
    before, after = inspector(one), inspector(two)
    assert (before["step"], before["verdict"]) == ("0", "certified")
    assert (after["step"], after["verdict"]) == ("2", "attacked")
    assert "Wants “left”, does “right”: falsified" in after["now"]
    assert float(after["cursor"]) == pytest.approx(2 * 900 / STEPS)
    assert "● done" in after["bars"]
    assert before["bars"] != after["bars"]
    assert before["views"] != after["views"]
    assert "alert(1)" not in re.findall(r"<script[^>]*>(.*?)</script>", one, re.DOTALL)[-1]


def screens(seen: dict[str, str]) -> tuple[list[str], list[str]]:
    """The rendered pictures, clean and attacked, and the words below them."""
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", seen["stage"])
    return re.findall(r'<img[^>]* src="([^"]*)"', seen["stage"]), captions


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium to run the page")
def test_rendered_pictures_are_in_step_and_the_end_stays(tmp_path: Path) -> None:
    facts = audited()
    page = write_page([facts], tmp_path)
    clean, attacked = (facts["trace"]["pictures"][name]["images"] for name in ("clean", "attacked"))
    shown = screens(inspector(browse(page, 3)[0]))
    assert shown == ([clean[1], attacked[1]], ["clean: return 4", "under pgd: return 4"])  # of step 2, the last before
    shown = screens(inspector(browse(page, 5)[0]))
    assert shown == ([clean[2], attacked[2]], ["clean: return 6", "under pgd: return 4, over after 4 steps"])


def test_a_shorter_page_has_the_pictures_of_its_steps() -> None:
    facts = audited()
    large = picture(0) + "A" * 900_000
    facts["trace"]["pictures"]["clean"] = {"at": list(range(7)), "images": [large] * 7}
    page = render([facts])
    assert len(page.encode()) < LARGEST_PAGE
    assert page.count("A" * 900_000) == 5  # of steps 0 … 4


def test_the_sentence_that_matters_comes_first() -> None:
    facts = audited() | {
        "verdict": "Clean return 6.0 ± 0.5. Not robust: at ε = 0.1 it falls to 4.0. Nothing certified."
    }
    page = render([facts])
    assert '<p class="verdict">Not robust: at ε = 0.1 it falls to 4.0.</p>' in page
    assert '<p class="more">Clean return 6.0 ± 0.5. Nothing certified.</p>' in page
    assert page.index('class="verdict"') < page.index("<svg")
    assert '<p class="verdict">Clean return 6.0.</p></div>' in render([facts | {"verdict": "Clean return 6.0."}])


def test_words_are_explained_where_they_stand() -> None:
    page = render([audited()])
    for word in ("IQM, 95 %", "GWC", "gap"):
        assert f'">{word}</abbr>' in page
        assert f"<dt>{word}</dt><dd>" in page  # for those who cannot point


def test_radii_are_drawn_to_scale() -> None:
    axes = Axes([0.01, 0.02, 0.1], [0.0, 500.0])
    zero, first, second, last = (axes.x(each) for each in (0.0, 0.01, 0.02, 0.1))
    assert first - zero == pytest.approx((last - zero) / 10)
    assert second - zero == pytest.approx((last - zero) / 5)
    names = re.findall(r'y="268" text-anchor="middle">([^<]*)<', axes.frame())
    assert names == ["0.1", "0.02", "0"]  # 0.01 stands too close; its tick is drawn
    assert axes.frame().count('class="tick"') == 4


PRESS = """<input id="typed"><script>
const press = (node, key) => node.dispatchEvent(new KeyboardEvent("keydown", { key: key, bubbles: true }));
for (const key of KEYS) press(document.body, key);
press(document.getElementById("typed"), "ArrowRight");
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium to run the page")
@pytest.mark.parametrize(("keys", "step"), [(["ArrowRight"] * 3 + ["ArrowLeft"], "2"), (["ArrowLeft", "a"], "0")])
def test_arrow_keys_move_the_slider_from_anywhere_but_a_text(keys: list[str], step: str, tmp_path: Path) -> None:
    page = write_page([audited(), audited("b")], tmp_path)
    text = page.read_text().replace("</body>", PRESS.replace("KEYS", json.dumps(keys)))
    page.write_text(text)
    document, said = browse(page, 0)
    assert said == ""
    assert inspector(document)["step"] == step
    second = re.findall(r'<section class="inspector"[^>]*data-step="(\d+)"', document)[1]
    assert second == "0"  # only the first moved


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium to run the page")
@pytest.mark.parametrize("frames", [False, True], ids=["vector", "frames"])
def test_nothing_is_wider_than_a_phone(frames: bool, tmp_path: Path) -> None:
    """In a frame of 390 pixels, for a window cannot be made so narrow; scrollers within the page count, too."""
    page = write_page([audited("an agent", frames)], tmp_path)
    frame = tmp_path / "frame.html"
    measure = (
        "const d = document.querySelector('iframe').contentDocument;"
        "d.querySelectorAll('details').forEach(x => x.open = true);"
        "document.body.dataset.wide = [d.documentElement, ...d.querySelectorAll('.scroll')]"
        ".filter(x => x.scrollWidth > x.clientWidth).map(x => x.scrollWidth + '>' + x.clientWidth).join(' ') || 'none'"
    )
    inner = page.read_text().replace("&", "&amp;").replace('"', "&quot;")
    frame.write_text(
        f'<meta charset="utf-8"><body><iframe srcdoc="{inner}" width="390" height="800" style="border:0"></iframe>'
        f'<script>addEventListener("load", () => {{ {measure} }})</script>'
    )
    document, _ = browse(frame, 0)
    assert re.findall(r'data-wide="([^"]*)"', document)[0] == "none"


@pytest.mark.parametrize(
    ("low", "high", "marks"),
    [
        (0.0, 3937.5, [0, 1000, 2000, 3000]),
        (0.0, 525.0, [0, 100, 200, 300, 400, 500]),
        (-22.0, 22.0, [-20, -10, 0, 10, 20]),
        (0.0, 0.05, [0, 0.01, 0.02, 0.03, 0.04, 0.05]),
    ],
)
def test_the_marks_of_an_axis_are_round(low: float, high: float, marks: list[float]) -> None:
    assert round_numbers(low, high) == pytest.approx(marks)
