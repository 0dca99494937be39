"""Names of the numbers in a vector and of actions: classic control, Box2D, MuJoCo and the buttons of Atari.

By the first word of an env's id. An env whose vector has several lengths has several lists; the one that fits is used.
"""

from radial.core.data import EnvSpec

Names = tuple[str, ...]


def _rotations(*joints: str) -> Names:
    return tuple(f"{joint} rotation" for joint in joints)


def _angles(*joints: str) -> Names:
    return tuple(f"{joint} angle" for joint in joints)


def _counted(what: str, count: int) -> Names:
    return tuple(f"{what} {i}" for i in range(count))


_AXES = ("x", "y", "z")
_LEGS = ("thigh", "leg", "foot")
_WALKER = (*(f"right {part}" for part in _LEGS), *(f"left {part}" for part in _LEGS))
_CHEETAH = ("back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot")
_ANT = tuple(f"{part} {i}" for i in range(1, 5) for part in ("hip", "ankle"))
_TURN = tuple(f"orientation {axis}" for axis in ("w", *_AXES))
_MOVES = (*(f"velocity {axis}" for axis in _AXES), *(f"rotation {axis}" for axis in _AXES))
_ANT_BODY = ("height", *_TURN, *_angles(*_ANT), *_MOVES, *_rotations(*_ANT))
_HUMANOID = (
    "abdomen z", "abdomen y", "abdomen x",
    *(f"right {part}" for part in ("hip x", "hip z", "hip y", "knee")),
    *(f"left {part}" for part in ("hip x", "hip z", "hip y", "knee")),
    *(f"right {part}" for part in ("shoulder 1", "shoulder 2", "elbow")),
    *(f"left {part}" for part in ("shoulder 1", "shoulder 2", "elbow")),
)  # fmt: skip
_HUMANOID_BODY = ("height", *_TURN, *_angles(*_HUMANOID), *_MOVES, *_rotations(*_HUMANOID))
_BIPED = tuple(
    name
    for i in (1, 2)
    for name in (f"hip {i} angle", f"hip {i} speed", f"knee {i} angle", f"knee {i} speed", f"leg {i} contact")
)
_LANDER = ("x", "y", "velocity x", "velocity y", "angle", "angular velocity", "left leg", "right leg")
_WALKS = ("hull angle", "hull angular velocity", "velocity x", "velocity y", *_BIPED, *_counted("lidar", 10))

FEATURES: dict[str, tuple[Names, ...]] = {
    "CartPole": (("cart position", "cart velocity", "pole angle", "pole angular velocity"),),
    "Acrobot": (("cos θ1", "sin θ1", "cos θ2", "sin θ2", "angular velocity 1", "angular velocity 2"),),
    "Pendulum": (("cos θ", "sin θ", "angular velocity"),),
    "MountainCar": (("position", "velocity"),),
    "MountainCarContinuous": (("position", "velocity"),),
    "LunarLander": (_LANDER,),
    "LunarLanderContinuous": (_LANDER,),
    "BipedalWalker": (_WALKS,),
    "BipedalWalkerHardcore": (_WALKS,),
    "Hopper": (("height", *_angles("torso", *_LEGS), "velocity x", "velocity z", *_rotations("torso", *_LEGS)),),
    "Walker2d": (("height", *_angles("torso", *_WALKER), "velocity x", "velocity z", *_rotations("torso", *_WALKER)),),
    "HalfCheetah": (
        ("height", *_angles("torso", *_CHEETAH), "velocity x", "velocity z", *_rotations("torso", *_CHEETAH)),
    ),
    "Ant": (_ANT_BODY, (*_ANT_BODY, *_counted("contact force", 78)), (*_ANT_BODY, *_counted("contact force", 84))),
    "Humanoid": (
        (
            *_HUMANOID_BODY, *_counted("inertia", 140), *_counted("body velocity", 84),
            *_counted("actuator force", 23), *_counted("contact force", 84),
        ),
        (
            *_HUMANOID_BODY, *_counted("inertia", 130), *_counted("body velocity", 78),
            *_counted("actuator force", 17), *_counted("contact force", 78),
        ),
    ),
    "Swimmer": (
        (
            *_angles("front", "joint 1", "joint 2"), "velocity x", "velocity y",
            *_rotations("front", "joint 1", "joint 2"),
        ),
    ),
    "Reacher": (
        (
            "cos joint 1", "cos joint 2", "sin joint 1", "sin joint 2", "target x", "target y",
            *_rotations("joint 1", "joint 2"), "finger to target x", "finger to target y", "finger to target z",
        ),
        (
            "cos joint 1", "cos joint 2", "sin joint 1", "sin joint 2", "target x", "target y",
            *_rotations("joint 1", "joint 2"), "finger to target x", "finger to target y",
        ),
    ),
    "InvertedPendulum": (("cart position", "pole angle", "cart velocity", "pole rotation"),),
    "InvertedDoublePendulum": (
        (
            "cart position", "sin pole 1", "sin pole 2", "cos pole 1", "cos pole 2", "cart velocity",
            *_rotations("pole 1", "pole 2"), "constraint force",
        ),
        (
            "cart position", "sin pole 1", "sin pole 2", "cos pole 1", "cos pole 2", "cart velocity",
            *_rotations("pole 1", "pole 2"), *_counted("constraint force", 3),
        ),
    ),
}  # fmt: skip

ACTIONS: dict[str, tuple[Names, ...]] = {
    "CartPole": (("push left", "push right"),),
    "Acrobot": (("torque −1", "no torque", "torque +1"),),
    "Pendulum": (("torque",),),
    "MountainCar": (("left", "nothing", "right"),),
    "MountainCarContinuous": (("force",),),
    "LunarLander": (("nothing", "left engine", "main engine", "right engine"), ("main engine", "side engines")),
    "LunarLanderContinuous": (("main engine", "side engines"),),
    "BipedalWalker": (("hip 1", "knee 1", "hip 2", "knee 2"),),
    "BipedalWalkerHardcore": (("hip 1", "knee 1", "hip 2", "knee 2"),),
    "CarRacing": (("steering", "gas", "brake"), ("nothing", "right", "left", "gas", "brake")),
    "Hopper": (_LEGS,),
    "Walker2d": (_WALKER,),
    "HalfCheetah": (_CHEETAH,),
    "Ant": (("hip 4", "ankle 4", "hip 1", "ankle 1", "hip 2", "ankle 2", "hip 3", "ankle 3"),),
    "Humanoid": (("abdomen y", "abdomen z", "abdomen x", *_HUMANOID[3:]),),
    "Swimmer": (("joint 1", "joint 2"),),
    "Reacher": (("joint 1", "joint 2"),),
    "InvertedPendulum": (("force",),),
    "InvertedDoublePendulum": (("force",),),
}
_SPELLED = {"NOOP": "nothing", "FIRE": "fire"}
_DIRECTIONS = ("UP", "DOWN", "LEFT", "RIGHT", "FIRE")


def feature_names(spec: EnvSpec, count: int) -> list[str]:
    """Names of the numbers of a vector."""
    return _of(FEATURES, spec, count) or [f"feature {i}" for i in range(count)]


def action_names(spec: EnvSpec, count: int) -> list[str]:
    """Names of the actions, of the axes of an action, or of buttons."""
    known = _buttons(spec)[:count] if spec.suite == "atari" else _of(ACTIONS, spec, count)
    return known if len(known) == count else [f"action {i}" for i in range(count)]


def _of(table: dict[str, tuple[Names, ...]], spec: EnvSpec, count: int) -> list[str]:
    known = table.get(spec.id.split("-")[0], ())
    return list(next((names for names in known if len(names) == count), ()))


def _buttons(spec: EnvSpec) -> list[str]:
    """The minimal actions of a game, in words: UPRIGHTFIRE is "up right fire"."""
    from radial.envs.atari import picture_of

    return [_spelled(button) for button in picture_of(spec)[1]]


def _spelled(button: str) -> str:
    if button in _SPELLED:
        return _SPELLED[button]
    words, rest = [], button
    while rest:
        word = next((each for each in _DIRECTIONS if rest.startswith(each)), rest)
        words.append(word.lower())
        rest = rest[len(word) :]
    return " ".join(words)
