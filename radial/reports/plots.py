"""The figures of `recipes.figures` as pages and pictures.

Needs matplotlib for the pictures; nothing is computed here but spelling and places.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from radial.core.data import BadInput
from radial.core.text import spell_radius
from radial.reports.figures import write
from radial.reports.markdown import EMPTY, aligned
from radial.workflows.paper_figures import Drawn

BLACK, BLUE, ORANGE, GREEN = "#000000", "#0072B2", "#D55E00", "#009E73"


def page(drawn: Drawn) -> str:
    """What was run, the numbers, and of which agents."""
    about, headings, rows = PAGES[drawn.name](drawn)
    agents = [
        [one["name"], f"{one['steps']:,}", str(one["seed"]), (one["commit"] or EMPTY)[:10], one["sha256"][:12]]
        for one in drawn.agents
    ]
    parts = [
        f"# {drawn.title}",
        f"`radial reproduce {drawn.name}`: {drawn.source}. {about}",
        aligned(headings, rows),
        "## Our agents",
        aligned(["agent", "steps", "seed", "commit", "weights"], agents),
    ]
    return "\n\n".join(parts) + "\n"


def plot(drawn: Drawn, path: Path) -> None:
    """Write a PNG."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BadInput("figures need matplotlib: pip install 'radial-rl[report]'") from None
    drawing: Any = Figure(figsize=(8.4, 4.2), layout="constrained")
    PLOTS[drawn.name](drawing, drawn)
    drawing.suptitle(drawn.title)
    write(drawing, path)


# ------------------------------------------------------------------------------------------------------- GWC, AWC, ACR


def _worst_cases(drawn: Drawn) -> tuple[str, list[str], list[list[str]]]:
    told = drawn.protocol
    about = (
        f"{told['starts']} starts, evaluation seed {told['seed']}, the first {told['horizon']} steps, bounds by "
        f"{told['bound']}, rounded outward. The share of starts from which a crossing is certain: under the greedy "
        "worst case (GWC), and over all sequences of possible actions (AWC), where a search ends after "
        f"{told['budget']:,} states; from … to where some did. ACR is the certified share of the undisturbed agent's "
        "steps until its first reward. The paper draws (x + 1)/2 of +1 and −1, which is the same share, and leaves out "
        "what is unknown after 2,000 paths."
    )
    rows = []
    for point in drawn.points:
        low, high = point["awc_share"]
        worst = f"{low:.3f}" if low == high else f"{low:.3f} … {high:.3f}"
        rate = f"{point['acr']:.3f} ± {point['acr_sem']:.3f}"
        rows.append(
            [spell_radius(point["radius"]), rate, f"{point['gwc_share']:.3f}", worst, str(point["awc_unknown"])]
        )
    return about, ["ε", "ACR", "GWC", "AWC", "AWC unknown"], rows


def _plot_worst_cases(drawing: Any, drawn: Drawn) -> None:
    panel = drawing.subplots()
    pixels = [point["radius"] * 255 for point in drawn.points]
    low, high = zip(*(point["awc_share"] for point in drawn.points), strict=True)
    panel.errorbar(
        pixels, [point["acr"] for point in drawn.points], [point["acr_sem"] for point in drawn.points],
        color=BLUE, marker="s", capsize=2.5, label="ACR",
    )  # fmt: skip
    panel.plot(pixels, [point["gwc_share"] for point in drawn.points], color=ORANGE, marker="D", label="GWC")
    panel.plot(pixels, low, color=BLACK, marker="o", label="AWC, proven")
    panel.plot(pixels, high, color=BLACK, marker="o", markerfacecolor="white", linestyle="--", label="AWC, not refuted")
    panel.fill_between(pixels, low, high, color=BLACK, alpha=0.15, linewidth=0)
    panel.set_ylim(-0.04, 1.04)
    panel.set_xlabel("255·ε")
    panel.set_ylabel("share of starts (ACR: of steps)")
    _finish(panel, columns=4)


# ---------------------------------------------------------------------------------------------------------- bias of Q


def _q_bias(drawn: Drawn) -> tuple[str, list[str], list[list[str]]]:
    told = drawn.protocol
    about = (
        f"{told['episodes']} greedy, undisturbed episodes of each agent, evaluation seed {told['seed']}. The error of "
        f"a step is Q(s, a) − Σ γᵏ·r to the end of the episode, γ {told['discount']:g}, r clipped to ±1 as in "
        "training; of an episode its mean; ± is the standard error over episodes."
    )
    rows = [
        [
            point["agent"], f"{point['mean']:.3f} ± {point['sem']:.3f}",
            f"{min(point['errors']):.3f} … {max(point['errors']):.3f}",
            f"{sum(point['returns']) / len(point['returns']):.1f}",
        ]
        for point in drawn.points
    ]  # fmt: skip
    return about, ["agent", "predicted − realised", "least … most of an episode", "mean return"], rows


def _plot_q_bias(drawing: Any, drawn: Drawn) -> None:
    panels = drawing.subplots(1, 2)
    for point, color in zip(drawn.points, (BLACK, ORANGE, BLUE, GREEN), strict=False):
        pairs = list(zip(point["predicted"], point["realised"], strict=True))
        panels[0].plot([p for p, _ in pairs], color=color, linewidth=1.0, label=f"{point['agent']}, predicted")
        panels[0].plot([r for _, r in pairs], color=color, linewidth=0.8, linestyle=":", label="realised")
        panels[1].plot([p - r for p, r in pairs], color=color, linewidth=1.0, label=point["agent"])
    panels[0].set_ylabel("Q(s, a), first episode")
    panels[1].set_ylabel("predicted − realised")
    panels[1].axhline(0.0, color="#666666", linewidth=0.8)
    for panel in panels:
        panel.set_xlabel("step")
        _finish(panel, columns=1)


def _finish(panel: Any, columns: int) -> None:
    panel.grid(axis="y", color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    # below, where no curve can be
    panel.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=columns)


PAGES: dict[str, Callable[[Drawn], tuple[str, list[str], list[list[str]]]]] = {
    "gwc-awc-acr": _worst_cases,
    "q-bias": _q_bias,
}
PLOTS: dict[str, Callable[[Any, Drawn], None]] = {"gwc-awc-acr": _plot_worst_cases, "q-bias": _plot_q_bias}
