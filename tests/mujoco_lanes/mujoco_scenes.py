# SPDX-License-Identifier: Apache-2.0
"""Parts of small models, each for a feature of MuJoCo's."""

from __future__ import annotations

FLOOR = '<geom name="floor" type="plane" size="9 9 1"/>'
SPHERE = 'type="sphere" size=".1"'
_SITE = '<site name="site" pos=".1 .05 .02" euler=".3 .2 .1" size=".3"/><camera name="camera"/>'
_LEG = """
<body name="{side}" pos="{x} 0 -.2"><joint name="{side}" axis="0 1 0" {joint}/>
  <geom name="{side}" type="capsule" fromto="0 0 0 0 0 -.3" size=".05"/>
  <site name="{side}_shin" pos="0 .01 -.1" euler=".1 .2 .3" size=".2"/></body>
"""
_TENDON = """
<tendon><fixed name="tendon"><joint joint="left" coef="1"/><joint joint="right" coef=".5"/></fixed>
</tendon>
"""


def scene(world: str, extra: str = "", option: str = "", flags: str = "") -> str:
    """A model as XML."""
    flag = f"<flag {flags}/>" if flags else ""
    return (
        f"<mujoco><compiler angle='radian'/><option {option}>{flag}</option>"
        f"<worldbody>{world}</worldbody>{extra}</mujoco>"
    )


def arm(shoulder: str = "", elbow: str = "", geom: str = "") -> str:
    """Two links in a plane, which touch nothing."""
    return f"""
<body name="upper" pos="0 0 1"><joint name="shoulder" axis="0 1 0" {shoulder}/>
  <geom type="capsule" fromto="0 0 0 .3 0 0" size=".04" {geom}/>
  <body name="lower" pos=".3 0 0"><joint name="elbow" axis="0 1 0" {elbow}/>
    <geom type="capsule" fromto="0 0 0 .25 0 .1" size=".03" {geom}/>
    <site name="tip" pos=".25 0 .1"/></body></body>
"""


def falling(geom: str = SPHERE, name: str = "b", pos: str = "0 0 .2") -> str:
    """A body that moves freely."""
    return f'<body name="{name}" pos="{pos}"><freejoint name="{name}"/><geom {geom}/></body>'


def with_site(name: str, body: str) -> str:
    """A body with a site off its origin."""
    return body.replace("<geom", f'<site name="{name}" pos=".05 .02 .1"/><geom', 1)


def walker(extra: str = "", floor: str = FLOOR) -> str:
    """A trunk with two legs, on a floor."""
    joint = 'range="-1 1" limited="true"'
    legs = "".join(
        _LEG.format(side=side, x=x, joint=joint) for side, x in (("left", -0.2), ("right", 0.2))
    )
    trunk = '<geom name="trunk" type="capsule" fromto="-.2 0 0 .2 0 0" size=".08"/>'
    return (
        f'{floor}<body name="trunk" pos="0 0 .6"><freejoint name="trunk"/>{trunk}{legs}{extra}'
        "</body>"
    )


def actuated(actuator: str, world: str | None = None, option: str = "", extra: str = "") -> str:
    """An arm with an actuator."""
    return scene(world or arm(), f"<actuator>{actuator}</actuator>{extra}", option)


def sensing(sensor: str) -> str:
    """A walker that touches the floor, with a sensor."""
    motor = '<motor name="motor" joint="left" gear="20" ctrlrange="-1 1"/>'
    return scene(
        walker(extra=_SITE) + falling(name="loose", pos="1 0 .3"),
        f"<actuator>{motor}</actuator>{_TENDON}<sensor>{sensor}</sensor>",
    )


def two(first: str = "", second: str = "", floor: str = FLOOR) -> str:
    """Two balls above each other."""
    return (
        floor
        + falling(f"{SPHERE} {first}", "a", "0 0 .3")
        + falling(f'type="sphere" size=".12" {second}', "b", ".05 0 .5")
    )
