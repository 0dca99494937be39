"""The headline of an audit: a few sentences, of numbers in the result alone, that claim no more than it holds.

An attack counts where its paired gap exceeds a tenth of the range of returns and two standard errors of the gap.
"""

import math

from radial.core.text import digits_down, percent_down, round_down, round_up, spell_radius
from radial.workflows.audit.result import AuditResult, Level, Played

USEFUL = 0.5  # of the range of returns: worth certifying
NOTHING = "nothing is certified"  # how a bracket begins whose lower bound holds for every policy


def headline(result: AuditResult, attacked: bool = True) -> str:
    """Where it breaks, up to where no attack has a clear effect, what is certified.

    attacked  False: the caller asked for no attack
    """
    over = "" if result.horizon is None else f" over the first {result.horizon} steps"
    said = [f"Clean return{over} {result.nominal.mean:.1f} ± {result.nominal.sem:.1f}."]
    tried = [level for level in result.levels if level.worst is not None]
    if tried:
        said += _attacks(result, tried)
    else:
        said.append("There was no time for an attack." if attacked else "No attack was asked for.")
    return " ".join([*said, *_actions(result), _certificate(result)])


def selection(result: AuditResult) -> list[str]:
    """A note on what choosing the strongest attack on the reported episodes is worth; none where nothing was chosen."""
    chosen = [(level, level.held_out) for level in result.levels if len(level.attacks) > 1]
    cells = [f"{found['mean']:.1f} at ε = {spell_radius(level.radius)}" for level, found in chosen if found is not None]
    how = "adversarial returns are the lowest of several attacks on the same episodes"
    return [f"{how}; with the attack chosen on the other half of them: {', '.join(cells)}"] if cells else []


def _attacks(result: AuditResult, tried: list[Level]) -> list[str]:
    said: list[str] = []
    clear = {level.radius: hit for level in tried if (hit := _clear(result, level)) is not None}
    first = min(clear, default=math.inf)
    if clear:
        hit = clear[first]
        told = "one episode" if len(hit.returns) == 1 else f"gap {hit.gap:.1f} ± {hit.gap_sem:.1f}"
        said.append(f"Not robust: at ε = {spell_radius(first)} {hit.attack} reduces it to {hit.mean:.1f} ({told}).")
    below = [level for level in tried if level.radius < first]
    if below:
        most = max((played for level in below for played in level.attacks.values()), key=lambda one: one.gap)
        gap = f"; the largest gap is {most.gap:.1f} ± {most.gap_sem:.1f}" if most.gap > 0 and not clear else ""
        said.append(f"No clear effect of any attack up to ε = {spell_radius(below[-1].radius)}{gap}.")
    return said


def _clear(result: AuditResult, level: Level) -> Played | None:
    """The attack with the largest gap among those with a clear effect."""
    hits = [played for played in level.attacks.values() if played.clear(result.width)]
    return max(hits, key=lambda played: played.gap, default=None)


def _actions(result: AuditResult) -> list[str]:
    """Certified actions and the certified radius, or for continuous actions their boxes; bounds are rounded outward."""
    said = []
    shares = [(level.radius, percent_down(level.acr["mean"])) for level in result.levels if level.acr is not None]
    boxes = [(level.radius, _width(level.box)) for level in result.levels if level.box is not None]
    for what, found in (("Certified actions", shares), ("Certified boxes of actions", boxes)):
        cells = [f"{text} at {'ε = ' * (i == 0)}{spell_radius(radius)}" for i, (radius, text) in enumerate(found)]
        said += [f"{what}: {', '.join(cells)}"] if cells else []
    if result.certified_radius is not None:
        mean = result.certified_radius["mean"]
        said.append(f"mean certified radius {digits_down(mean, 2)}" if mean > 0 else "no action is certified at any ε")
    text = "; ".join(said)
    return [f"{text[0].upper()}{text[1:]}."] if text else []


def _no_action(result: AuditResult) -> bool:
    """Whether no action was certified at any radius: a bound is then only that episodes cannot end sooner."""
    rates = [level.acr for level in result.levels if level.acr is not None]
    return bool(rates) and not any(rate["certified"] for rate in rates)


def _width(box: dict[str, object]) -> str:
    width = float(box["width"])  # type: ignore[arg-type]
    return f"{round_up(100 * width, 0)} % of the range" if box["relative"] else round_up(width, 3)


def _certificate(result: AuditResult) -> str:
    """The certified return, which holds against every adversary and not only those that were tried.

    Of several radii the largest at which half of the range of returns is certified; if there is none, the best one.
    """
    sides = [
        (level.radius, level.bracket) for level in result.levels
        if level.bracket is not None and level.bracket.kind == "certified" and level.bracket.lower is not None
    ]  # fmt: skip
    certified = [
        (radius, side.lower, side.starts) for radius, side in sides
        if side.lower is not None and not side.says.startswith(NOTHING)
    ]  # fmt: skip
    clean = result.nominal.mean
    useful = [one for one in certified if clean - one[1] <= (1 - USEFUL) * result.width]
    if sides and not useful and (not certified or _no_action(result)):
        return "Nothing is certified about the return."
    if certified:
        radius, lower, starts = max(useful) if useful else max(certified, key=lambda one: one[1])
        what = "Certified" if useful else "Little is certified"
        whose = f"mean return from these {starts} starts" if starts > 1 else "return from this one start"
        return f"{what}: at ε = {spell_radius(radius)} no adversary can bring the {whose} below {round_down(lower)}."
    return "No return is certified."
