"""The headline of an audit, in plain words. Only numbers that are in the result are spoken of."""

from radial.core.text import round_down, spell_radius
from radial.evaluation.statistics import sem
from radial.workflows.audit.result import AuditResult

KEEPS = 0.9  # of the undisturbed return: what is called standing firm
USEFUL = 0.5  # of it: what is worth proving


def headline(result: AuditResult, attacked: bool = True) -> str:
    """Two or three sentences: up to where it stands firm, where it breaks, what is proven.

    attacked  False: the caller asked for no attack
    """
    nominal = result.nominal.mean
    said = [f"Undisturbed it scores {nominal:.1f} ± {sem(result.nominal.returns):.1f}."]
    tried = [level for level in result.levels if level.worst is not None]
    if not tried:
        why = "There was no time for an attack." if attacked else "No attack was asked for."
        return " ".join([*said, why, _proven(result)])
    firm = [level for level in tried if _keeps(level.worst.mean if level.worst else None, nominal, KEEPS)]
    broken = [level for level in tried if level not in firm]
    if broken:
        first = min(broken, key=lambda level: level.radius)
        worst = first.worst
        assert worst is not None
        brought = f"the attack {worst.attack} brings it to {worst.mean:.1f}"
        said.append(f"It is not robust: at ε = {spell_radius(first.radius)} {brought}.")
    below = [level for level in firm if not broken or level.radius < min(b.radius for b in broken)]
    if below:
        last = max(below, key=lambda level: level.radius)
        said.append(f"No attack tried costs it more than a tenth up to ε = {spell_radius(last.radius)}.")
    return " ".join([*said, _proven(result)])


def _keeps(value: float | None, nominal: float, share: float) -> bool:
    return value is not None and nominal - value <= (1 - share) * abs(nominal)


def _proven(result: AuditResult) -> str:
    """What holds against every adversary, not only those that were tried.

    Of several radii the largest at which half of the return is proven; if there is none, the best that there is.
    """
    certified = [
        (level.radius, level.bracket.lower, level.bracket.starts) for level in result.levels
        if level.bracket is not None and level.bracket.kind == "certified" and level.bracket.lower is not None
    ]  # fmt: skip
    useful = [one for one in certified if _keeps(one[1], result.nominal.mean, USEFUL)]
    if certified:
        radius, lower, starts = max(useful) if useful else max(certified, key=lambda one: one[1])
        what = "Proven" if useful else "Little is proven"
        whose = f"mean return from these {starts} first states" if starts > 1 else "return from this one first state"
        return f"{what}: at ε = {spell_radius(radius)} no adversary can bring its {whose} below {round_down(lower)}."
    if result.certified_radius is not None:
        mean = result.certified_radius["mean"]
        if mean == 0:
            return "Not one action of the states it visited is proven, at any ε."
        return f"In the mean over visited states its action is proven up to ε = {mean:.2g}. Its return is not proven."
    return "Nothing about its return is proven."
