"""The headline of an audit, in plain words. Only numbers that are in the result are spoken of."""

from radial.audits.result import AuditResult, Level
from radial.core.words import spell_radius
from radial.evaluation.statistics import sem

KEEPS = 0.9  # of the undisturbed return: what is called standing firm


def headline(result: AuditResult) -> str:
    """Two or three sentences: up to where it stands firm, where it breaks, what is proven."""
    nominal = result.nominal.mean
    said = [f"Undisturbed it scores {nominal:.1f} ± {sem(result.nominal.returns):.1f}."]
    tried = [level for level in result.levels if level.worst is not None]
    if not tried:
        return " ".join([*said, "There was no time for an attack."])
    firm = [level for level in tried if _kept(level, nominal)]
    broken = [level for level in tried if not _kept(level, nominal)]
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


def _kept(level: Level, nominal: float) -> bool:
    worst = level.worst
    return worst is not None and nominal - worst.mean <= (1 - KEEPS) * abs(nominal)


def _proven(result: AuditResult) -> str:
    """What holds against every adversary, not only those that were tried."""
    certified = [
        level for level in result.levels
        if level.bracket is not None and level.bracket.kind == "certified" and level.bracket.lower is not None
    ]  # fmt: skip
    if certified:
        best = max(certified, key=lambda level: (level.bracket.lower or 0.0, level.radius))  # type: ignore[union-attr]
        assert best.bracket is not None
        return f"Proven: at ε = {spell_radius(best.radius)} no adversary can bring it below {best.bracket.lower:.1f}."
    if result.certified_radius is not None:
        mean = result.certified_radius["mean"]
        if mean == 0:
            return "Not one action of the states it visited is proven, at any ε."
        return f"Proven for its mean state: the action holds up to ε = {mean:.2g}. Its return is not proven."
    return "Nothing about its return is proven."
