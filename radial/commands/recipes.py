"""`radial recipes`: every named training recipe."""

from rich.table import Table

from radial.commands.terminal import print_json, print_table


def recipes(json: bool = False) -> None:
    """List the recipes: environment, objective, steps, ε, and the paper's numbers.

    Args:
        json: print a JSON object, with every setting and every known deviation from the paper.
    """
    from radial.core.text import spell_radius
    from radial.recipes.recipe import RECIPES
    from radial.runs.config import encode

    if json:
        print_json({
            name: {
                "config": encode(recipe.config),
                "radius": recipe.radius,
                "paper": [vars(cell) for cell in recipe.paper],
                "differs": list(recipe.differs),
                "init": recipe.init,
            }
            for name, recipe in RECIPES().items()
        })  # fmt: skip
        return
    table = Table(title="`radial train NAME`; --json shows every setting and the deviations from the papers")
    for heading in ("recipe", "env", "objective", "steps", "ε", "paper: clean, then adversarial"):
        table.add_column(heading)
    for name, recipe in RECIPES().items():
        said = ["–" if cell.mean is None else f"{cell.mean:g}" for cell in recipe.paper]
        table.add_row(
            name, recipe.config.env.id, type(recipe.config.objective).__name__, f"{recipe.config.total_steps:,}",
            spell_radius(recipe.radius), "  ".join(said) or "–",
        )  # fmt: skip
    print_table(table)
