"""Pictures of a recorded episode for the page: both films, scaled and encoded within a budget of bytes.

Plain strings, ready for JSON. How an episode is played again is in `envs.film`; how pictures are shown in `reports`.
"""

import base64
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image
from torch import Tensor

from radial.core.data import EnvSpec
from radial.envs.film import Film, Shot, Take, film
from radial.envs.offscreen import NotRendered

PICTURES = 150  # of each episode, at most
_LARGEST = 3_000_000  # characters of all pictures of a page
FEW_COLOURS = 256  # a PNG has a palette, and is exact
QUALITY = 60  # of a WebP, half of a JPEG's size


def take_of(trace: Mapping[str, Any], attacked: bool) -> Take:
    """One of the two episodes of a trace, to be played again; a trace has every action exactly."""
    world, episode = trace["world"], trace if attacked else trace["nominal"]
    spec = EnvSpec(world["suite"], world["env"], dict(world["options"]))
    return Take(spec, world["seed"], world["episode"], episode["action"], episode["reward"])


def world_of(spec: EnvSpec, seed: int, episode: int) -> dict[str, Any]:
    """The env of a trace, ready for JSON."""
    return {"suite": spec.suite, "env": spec.id, "options": dict(spec.options), "seed": seed, "episode": episode}


def exactly(actions: Sequence[Tensor]) -> list[Any]:
    """Actions as plain numbers that become the same float32 again: integers, or lists of the shortest decimals."""
    return [action.tolist() if action.ndim == 0 else [float(str(v)) for v in action.numpy()] for action in actions]


def pictures_of(trace: Mapping[str, Any], seconds: float = math.inf) -> dict[str, Any]:
    """Pictures of both episodes, as many as time and `_LARGEST` allow; where there are none, a note says why.

    clean, attacked  `at` (K,) steps, `images` (K,) data URLs        note  why one could not be shown, or None
    """
    steps = max(len(trace["reward"]), len(trace["nominal"]["reward"]))
    every = math.ceil((steps + 1) / PICTURES)
    try:
        films = [film(take_of(trace, hit), every=every, seconds=seconds / 2) for hit in (False, True)]
    except NotRendered as error:
        return {"clean": None, "attacked": None, "note": f"no pictures: {error}"}
    encoded = [[data_url(shot) for shot in each.pictures] for each in films]
    clean, attacked = fitting(films, encoded, _LARGEST)
    return {"clean": clean, "attacked": attacked, "note": next((each.note for each in films if each.note), None)}


def fitting(films: Sequence[Film], encoded: Sequence[Sequence[str]], largest: int) -> list[dict[str, Any]]:
    """Every picture, or every second, fourth, … of each film and its last one: as many as `largest` has room for."""
    apart = 1
    while True:
        kept = [[*range(0, len(each.at) - 1, apart), len(each.at) - 1] for each in films]
        size = sum(len(urls[k]) for urls, rows in zip(encoded, kept, strict=True) for k in rows)
        if size <= largest or all(len(rows) <= 2 for rows in kept):
            return [
                {"at": [each.at[k] for k in rows], "images": [urls[k] for k in rows]}
                for each, urls, rows in zip(films, encoded, kept, strict=True)
            ]
        apart *= 2


def data_url(shot: Shot) -> str:
    """A picture as a data URL: a PNG with a palette where it has few colours and that is smaller, else a WebP."""
    image = Image.fromarray(shot)
    kinds = {"webp": _file(image, "WEBP", quality=QUALITY)}
    if image.getcolors(FEW_COLOURS) is not None:
        kinds["png"] = _file(image.quantize(FEW_COLOURS, dither=Image.Dither.NONE), "PNG", optimize=True)
    kind = min(kinds, key=lambda name: len(kinds[name]))
    return f"data:image/{kind};base64,{base64.b64encode(kinds[kind]).decode()}"


def _file(image: Image.Image, kind: str, **settings: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **settings)
    return file.getvalue()
