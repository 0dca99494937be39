"""Reduced agents in the papers' tables: beside the row of their method, and listed before they are trained."""

from radial.recipes.recipe import RECIPES
from radial.recipes.tables import TABLES, table


def test_a_reduced_row_quotes_the_paper_of_its_method() -> None:
    rows = {row.recipe: row for row in table("atari").rows}
    small, full = rows["bankheist-small-radial-dqn-worst-case"], rows["bankheist-radial-dqn-worst-case"]
    assert (small.extra, small.listed, small.beside) == (True, True, full.recipe)
    assert small.paper == full.paper
    assert not rows["pong-small-car-dqn"].reported  # the paper has no CAR-DQN to compare it with


def test_every_small_recipe_of_deep_q_learning_is_in_a_table() -> None:
    shown = {row.recipe for one in TABLES().values() for row in one.rows}
    missing = [name for name in RECIPES() if "-small-" in name and name.endswith("dqn") and name not in shown]
    assert not missing


def test_random_starts_are_played_in_every_row_and_compared_with_no_paper() -> None:
    starts = table("atari-random-starts")
    assert not starts.reported
    assert all(row.options == {"random_start": 30} for row in starts.rows)
