# SPDX-License-Identifier: Apache-2.0
"""Small models, each for a feature of MuJoCo's: lanes equal MuJoCo on it, or refuse the model."""

from __future__ import annotations

FLOOR = '<geom name="floor" type="plane" size="9 9 1"/>'
ARM = """
<body name="upper" pos="0 0 1"><joint name="shoulder" axis="0 1 0" {shoulder}/>
  <geom type="capsule" fromto="0 0 0 .3 0 0" size=".04" {geom}/>
  <body name="lower" pos=".3 0 0"><joint name="elbow" axis="0 1 0" {elbow}/>
    <geom type="capsule" fromto="0 0 0 .25 0 .1" size=".03" {geom}/>
    <site name="tip" pos=".25 0 .1"/></body></body>
"""
BALL = '<body name="{name}" pos="{pos}"><freejoint name="{name}"/><geom {geom}/></body>'


def scene(world: str, extra: str = "", option: str = "", flags: str = "") -> str:
    """A model as XML."""
    flag = f"<flag {flags}/>" if flags else ""
    return (
        f"<mujoco><compiler angle='radian'/><option {option}>{flag}</option>"
        f"<worldbody>{world}</worldbody>{extra}</mujoco>"
    )


def arm(shoulder: str = "", elbow: str = "", geom: str = "") -> str:
    """Two links in a plane, which touch nothing but a floor that is far below."""
    return ARM.format(shoulder=shoulder, elbow=elbow, geom=geom)


def falling(geom: str = 'type="sphere" size=".1"', name: str = "b", pos: str = "0 0 .2") -> str:
    """A body that moves freely."""
    return BALL.format(name=name, pos=pos, geom=geom)


def walker(extra: str = "", floor: str = FLOOR, joint: str = 'range="-1 1" limited="true"') -> str:
    """A trunk with two legs, on a floor."""
    legs = "".join(
        f'<body name="{side}" pos="{x} 0 -.2"><joint name="{side}" axis="0 1 0" {joint}/>'
        f'<geom name="{side}" type="capsule" fromto="0 0 0 0 0 -.3" size=".05"/>'
        f'<site name="{side}_shin" pos="0 .01 -.1" euler=".1 .2 .3" size=".2"/></body>'
        for side, x in (("left", -0.2), ("right", 0.2))
    )
    return (
        f'{floor}<body name="trunk" pos="0 0 .6"><freejoint name="trunk"/>'
        f'<geom name="trunk" type="capsule" fromto="-.2 0 0 .2 0 0" size=".08"/>{legs}{extra}</body>'
    )


def actuated(actuator: str, world: str | None = None, option: str = "", extra: str = "") -> str:
    """An arm with an actuator."""
    return scene(world or arm(), f"<actuator>{actuator}</actuator>{extra}", option)


def sensing(sensor: str) -> str:
    """A walker that touches the floor, with a sensor."""
    site = '<site name="site" pos=".1 .05 .02" euler=".3 .2 .1" size=".3"/><camera name="camera"/>'
    return scene(
        walker(extra=site) + falling(name="loose", pos="1 0 .3"),
        '<actuator><motor name="motor" joint="left" gear="20" ctrlrange="-1 1"/></actuator>'
        '<tendon><fixed name="tendon"><joint joint="left" coef="1"/><joint joint="right" coef=".5"/>'
        f"</fixed></tendon><sensor>{sensor}</sensor>",
    )


_TWO = falling('type="sphere" size=".1" {0}', "a", "0 0 .3") + falling(
    'type="sphere" size=".12" {1}', "b", ".05 0 .5"
)


def two(first: str = "", second: str = "", floor: str = FLOOR) -> str:
    """Two balls above each other."""
    return floor + _TWO.format(first, second)


# lanes are to step these themselves
COVERED: dict[str, str] = {
    "springs": scene(arm('stiffness="20" springref=".5"', 'stiffness="3" springref="-.4"')),
    "a sliding spring": scene(
        '<body pos="0 0 1"><joint type="slide" axis="1 0 1" stiffness="9" springref=".2"/>'
        '<joint type="slide" axis="0 1 .2" stiffness="2"/><geom size=".1"/></body>'
    ),
    "a reference position": scene(arm('ref=".7" stiffness="5"', 'ref="-.3" springref=".1"')),
    "a joint off the body's origin": scene(arm('pos=".1 .05 -.1"', 'pos="-.05 .02 .03"')),
    "three hinges in a body": scene(
        '<body pos="0 0 1"><joint axis="1 0 0" pos=".1 0 0"/><joint axis="0 1 0"/>'
        '<joint axis="0 .3 1" pos="0 .1 .1"/><geom type="capsule" size=".05 .2" pos=".2 .1 0"/></body>'
    ),
    "a ball joint": scene(
        '<body pos="0 0 1"><joint type="ball" damping=".1" armature=".01"/>'
        '<geom type="capsule" size=".05 .2" pos=".1 0 -.2"/><body pos=".1 0 -.4">'
        '<joint type="ball"/><geom type="capsule" size=".04 .1" pos="0 .1 0"/></body></body>'
    ),
    "a ball joint with RK4": scene(
        '<body pos="0 0 1"><joint type="ball" damping=".1"/>'
        '<geom type="capsule" size=".05 .2" pos=".1 0 -.2"/></body>', option='integrator="RK4"',
    ),
    "free joints": scene(falling() + falling('type="capsule" size=".05 .2"', "c", "1 0 1")),
    "a full inertia": scene(
        '<body pos="0 0 1"><freejoint/><inertial pos=".05 .02 .01" mass="2" '
        'fullinertia=".03 .04 .05 .004 -.003 .002"/><geom size=".1" contype="0"/></body>'
    ),
    "a welded child": scene(
        '<body pos="0 0 1"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".04"/>'
        '<body pos=".3 0 0" euler=".2 .3 .4"><geom type="box" size=".05 .1 .02" contype="0" '
        'conaffinity="0"/></body></body>'
    ),
    "limits": scene(arm('range="-.3 .2" limited="true"', 'range="-.5 .5" limited="true"')),
    "limits with a margin": scene(
        arm('range="-.3 .2" limited="true" margin=".1"', 'range="-.5 .5" limited="true" margin=".3"')
    ),
    "a narrow range with both limits near": scene(
        arm('range="-.05 .05" limited="true" margin=".2"')
    ),
    "limits on slides": scene(
        '<body pos="0 0 1"><joint type="slide" axis="1 0 0" range="-.2 .1" limited="true"/>'
        '<joint type="slide" axis="0 0 1" range="-.1 .3" limited="true" margin=".02"/>'
        '<geom size=".1"/></body>'
    ),
    "stiffness given as itself": scene(
        arm('range="-.3 .2" limited="true" solreflimit="-500 -20"') , option='timestep=".002"'
    ),
    "contacts with stiffness given as itself": scene(two('solref="-900 -30"', 'solref="-900 -30"')),
    "one stiffness given as itself": scene(two('solref="-900 -30"', 'solref=".03 .8"')),
    "impedance of power 1": scene(arm('range="-.3 .2" limited="true" solimplimit=".8 .95 .05 .5 1"')),
    "impedance of power 2": scene(arm('range="-.3 .2" limited="true" solimplimit=".7 .95 .05 .4 2"')),
    "impedance of power 3": scene(arm('range="-.3 .2" limited="true" solimplimit=".7 .99 .2 .6 3"')),
    "impedance of power 2.5": scene(arm('range="-.3 .2" limited="true" solimplimit=".7 .9 .1 .3 2.5"')),
    "a flat impedance": scene(arm('range="-.3 .2" limited="true" solimplimit=".9 .9 .001 .5 2"')),
    "impedance without a width": scene(arm('range="-.3 .2" limited="true" solimplimit=".8 .9 0 .5 2"')),
    "a stiff reference that is kept safe": scene(
        arm('range="-.3 .2" limited="true" solreflimit=".001 1"'), option='timestep=".005"'
    ),
    "a stiff reference that is not kept safe": scene(
        arm('range="-.3 .2" limited="true" solreflimit=".008 1"'), option='timestep=".005"',
        flags='refsafe="disable"',
    ),
    "dry friction": scene(arm('frictionloss=".5"', 'frictionloss=".05"')),
    "dry friction and limits": scene(
        arm('frictionloss=".5" range="-.3 .2" limited="true"', 'frictionloss="2"')
    ),
    "dry friction with its own softness": scene(
        arm('frictionloss=".5" solreffriction=".05 .7" solimpfriction=".5 .9 .01 .5 2"')
    ),
    "armature": scene(arm('armature="1"', 'armature=".1"')),
    "damping by Euler": scene(arm('damping="3"', 'damping=".5"')),
    "damping by Euler, not implicit": scene(arm('damping="1"', 'damping=".1"'), flags='eulerdamp="disable"'),
    "damping by RK4": scene(arm('damping="1"', 'damping=".2"'), option='integrator="RK4"'),
    "RK4 with contacts": scene(walker(), option='integrator="RK4"'),
    "a fluid": scene(arm(), option='density="1000" viscosity=".5"'),
    "a viscous fluid": scene(arm(), option='viscosity="2"'),
    "a dense fluid": scene(arm(), option='density="500"'),
    "wind": scene(arm(), option='density="1.2" viscosity=".00002" wind="3 -2 1"'),
    "a fluid around free bodies by RK4": scene(
        falling('type="capsule" size=".05 .2"'), option='density="900" viscosity=".3" integrator="RK4"'
    ),
    "contacts without friction": scene(walker(floor='<geom type="plane" size="9 9 1" condim="1"/>')
                                       .replace('type="capsule"', 'type="capsule" condim="1"')),
    "contacts with friction": scene(walker()),
    "contacts of which some are without friction": scene(two('condim="1"', 'condim="1"')),
    "a floor of one dimension, a ball of three": scene(two('condim="3"', 'condim="1"',
                                                            '<geom type="plane" size="9 9 1" condim="1"/>')),
    "margins": scene(two('margin=".03"', 'margin=".05"')),
    "priorities": scene(two('priority="1" friction=".2" solref=".05 1"', 'friction="2" solimp=".5 .9 .01"')),
    "a priority that lowers dimensions": scene(two('priority="2" condim="1"', 'condim="3"')),
    "solmix": scene(two('solmix="3" solref=".05 1"', 'solmix=".5" solimp=".5 .9 .01"')),
    "solmix of nothing": scene(two('solmix="0" solref=".05 1"', 'solmix="1" solref=".01 .5"')),
    "solmix of nothing on both sides": scene(two('solmix="0" solref=".05 1"', 'solmix="0"')),
    "slippery": scene(two('friction="0"', 'friction="0"', '<geom type="plane" size="9 9 1" friction="0"/>')),
    "impratio": scene(walker(), option='impratio="10"'),
    "pairs that are left out": scene(
        walker(), '<contact><exclude body1="left" body2="right"/><exclude body1="world" body2="left"/></contact>'
    ),
    "masks": scene(two('contype="2" conaffinity="4"', 'contype="4" conaffinity="1"')),
    "children that touch parents": scene(walker(), flags='filterparent="disable"'),
    "several trees": scene(walker() + falling(name="x", pos=".3 .05 .3") + falling(
        'type="capsule" size=".07 .2"', "y", "-.3 0 .2")),
    "a heap": scene(FLOOR + "".join(falling(name=f"h{i}", pos=f"{.03 * i} {.02 * i} {.15 * i}")
                                    for i in range(1, 6))),
    "islands that rest apart": scene(FLOOR + "".join(
        falling('type="capsule" size=".1 .2" euler="1.57 0 0"', name=f"h{i}", pos=f"{i} 0 .1")
        for i in range(4))),
    "a sphere and a capsule": scene(FLOOR + falling() + falling('type="capsule" size=".08 .2"', "c", ".1 0 .4")),
    "capsules": scene(FLOOR + falling('type="capsule" size=".08 .2" euler="1.5 0 0"', "d", "0 0 .2")
                      + falling('type="capsule" size=".08 .2" euler="0 1.5 0"', "c", ".1 0 .4")),
    "a fixed ball and capsule": scene(
        '<geom size=".3"/><geom type="capsule" fromto=".5 -1 0 .5 1 0" size=".2"/>'
        + falling(pos=".1 0 .5") + falling('type="capsule" size=".05 .2"', "c", ".3 .1 .7")),
    "a tilted floor": scene('<geom type="plane" size="9 9 1" euler=".2 .1 0" pos="0 0 -.1"/>' + falling()
                            + falling('type="capsule" size=".05 .2"', "c", ".5 0 .3")),
    "two floors": scene(FLOOR + '<geom type="plane" size="9 9 1" euler="0 1.2 0" pos="-.3 0 0"/>' + falling()),
    "a cylinder on a floor": scene(FLOOR + falling('type="cylinder" size=".1 .05"')),
    "geoms of one body": scene(FLOOR + '<body pos="0 0 .3"><freejoint/><geom size=".1"/>'
                               '<geom size=".05" pos=".2 0 0"/><geom type="capsule" size=".03 .1" pos="-.2 0 0"/></body>'
                               + falling(name="z", pos=".1 0 .6")),
    "PGS": scene(walker(), option='solver="PGS" iterations="50"'),
    "PGS without warm starts": scene(walker(), option='solver="PGS"', flags='warmstart="disable"'),
    "few iterations": scene(walker(), option='iterations="1"'),
    "few steps of the line search": scene(walker(), option='ls_iterations="2"'),
    "a loose tolerance": scene(walker(), option='tolerance="1e-3"'),
    "no tolerance": scene(walker(), option='tolerance="0" iterations="7"'),
    "a loose line search": scene(walker(), option='ls_tolerance=".5"'),
    "no warm starts": scene(walker(), flags='warmstart="disable"'),
    "no gravity": scene(walker(), flags='gravity="disable"'),
    "gravity to a side": scene(walker(), option='gravity="1 2 -3"'),
    "no contacts": scene(walker(), flags='contact="disable"'),
    "no limits": scene(walker(), flags='limit="disable"'),
    "no constraints": scene(walker(), flags='constraint="disable"'),
    "no actuation": actuated('<motor joint="elbow" gear="3"/>').replace(
        "</option>", '<flag actuation="disable"/></option>'),
    "controls that are not clamped": actuated(
        '<motor joint="elbow" gear="3" ctrlrange="-1 1" ctrllimited="true"/>'
    ).replace("</option>", '<flag clampctrl="disable"/></option>'),
    "a motor": actuated('<motor joint="elbow" gear="3" ctrlrange="-.5 1" ctrllimited="true"/>'),
    "a motor without a range": actuated('<motor joint="elbow" gear="-2"/>'),
    "a servo of positions": actuated('<position joint="elbow" kp="30" gear="2" ctrlrange="-1 1"/>'),
    "a damped servo of positions": actuated('<position joint="elbow" kp="30" kv="3" forcerange="-2 1"/>'),
    "a servo of velocities": actuated('<velocity joint="elbow" kv="2" ctrlrange="-3 3"/>'),
    "affine gains and biases": actuated(
        '<general joint="elbow" gainprm="2 .3 .1" biastype="affine" gaintype="affine" biasprm=".5 -3 -.2" gear="1.5"/>'
    ),
    "a range of forces": actuated('<motor joint="elbow" gear="3" forcerange="-.2 .4" forcelimited="true"/>'),
    "a range of a joint's forces": actuated(
        '<motor joint="elbow" gear="3"/><motor joint="elbow" gear="2"/>',
        arm(elbow='actuatorfrcrange="-.3 .5" actuatorfrclimited="true"')),
    "a motor on a tendon": actuated(
        '<motor tendon="t" gear="2"/>',
        extra='<tendon><fixed name="t"><joint joint="shoulder" coef=".7"/><joint joint="elbow" coef="-1.3"/></fixed></tendon>'),
    "a servo on a tendon": actuated(
        '<position tendon="t" kp="20"/>',
        extra='<tendon><fixed name="t"><joint joint="shoulder" coef=".7"/><joint joint="elbow" coef="-1.3"/></fixed></tendon>'),
    "an energy that is told": scene(walker(), flags='energy="enable"'),
    "a coarse step": scene(walker(), option='timestep=".02"'),
    "a fine step": scene(walker(), option='timestep=".0005"'),
}

# lanes may refuse these; where they do not, they are to be equal
OTHERS: dict[str, str] = {
    "implicitfast": scene(arm('damping="1"'), option='integrator="implicitfast"'),
    "implicit": scene(arm('damping="1"'), option='integrator="implicit"'),
    "elliptic cones": scene(walker(), option='cone="elliptic"'),
    "CG": scene(walker(), option='solver="CG"'),
    "noslip": scene(walker(), option='noslip_iterations="3"'),
    "PGS with dry friction": scene(arm('frictionloss=".5"'), option='solver="PGS"'),
    "PGS with several trees": scene(two(), option='solver="PGS"'),
    "4 dimensions": scene(two('condim="4"', 'condim="3"')),
    "6 dimensions": scene(two('condim="6"', 'condim="1"')),
    "a priority of 6 dimensions": scene(two('priority="1" condim="6"', 'condim="3"')),
    "gaps": scene(two('margin=".05" gap=".02"', 'margin=".03"')),
    "an explicit pair": scene(two(), '<contact><pair geom1="floor" geom2="p" friction=".3 .3 .01 .01 .01"/></contact>'
                              ).replace('type="sphere" size=".1"', 'name="p" type="sphere" size=".1"'),
    "a connection": scene(arm(), '<equality><connect body1="lower" body2="world" anchor=".2 0 .1"/></equality>'),
    "a weld": scene(walker(), '<equality><weld body1="left" body2="right"/></equality>'),
    "coupled joints": scene(arm(), '<equality><joint joint1="elbow" joint2="shoulder" polycoef=".1 1"/></equality>'),
    "an equality that is off": scene(arm(), '<equality><joint joint1="elbow" active="false"/></equality>'),
    "equalities disabled": scene(arm(), '<equality><joint joint1="elbow"/></equality>', flags='equality="disable"'),
    "gravity compensation": scene(arm().replace('name="lower"', 'name="lower" gravcomp=".7"')),
    "a spring on a ball joint": scene('<body pos="0 0 1"><joint type="ball" stiffness="3"/><geom size=".1" pos=".2 0 0"/></body>'),
    "a limited ball joint": scene('<body pos="0 0 1"><joint type="ball" range="0 .5" limited="true"/><geom size=".1" pos=".2 0 0"/></body>'),
    "a spring on a free joint": scene('<body pos="0 0 1"><joint type="free" stiffness="3"/><geom size=".1"/></body>'),
    "a damped free joint": scene('<body pos="0 0 1"><joint type="free" damping="3" armature=".1"/><geom size=".1"/></body>'),
    "a free joint with dry friction": scene('<body pos="0 0 1"><joint type="free" frictionloss="3"/><geom size=".1"/></body>'),
    "ellipsoids in a fluid": scene(falling('type="ellipsoid" size=".1 .2 .05" fluidshape="ellipsoid"'), option='density="900"'),
    "a box on a floor": scene(FLOOR + falling('type="box" size=".1 .05 .07"')),
    "an ellipsoid on a floor": scene(FLOOR + falling('type="ellipsoid" size=".1 .05 .07"')),
    "boxes": scene(falling('type="box" size=".1 .05 .07"') + falling('type="box" size=".1 .05 .07"', "c", "0 0 .3")),
    "a cylinder and a sphere": scene(FLOOR + falling('type="cylinder" size=".1 .05"') + falling(name="s", pos="0 0 .4")),
    "a floor that moves": scene('<body pos="0 0 0"><joint type="slide" axis="0 0 1" stiffness="50" damping="5"/>'
                                '<geom type="plane" size="9 9 1" mass="3"/><geom size=".1" contype="0" conaffinity="0"/></body>' + falling(pos="0 0 .3")),
    "a mocap body": scene('<body name="m" mocap="true" pos="0 0 .1"><geom size=".1"/></body>' + falling(pos=".05 0 .4")),
    "a limited tendon": scene(arm(), '<tendon><fixed limited="true" range="-.3 .3"><joint joint="elbow" coef="1"/></fixed></tendon>'),
    "a springy tendon": scene(arm(), '<tendon><fixed stiffness="3"><joint joint="elbow" coef="1"/></fixed></tendon>'),
    "a damped tendon": scene(arm(), '<tendon><fixed damping="3"><joint joint="elbow" coef="1"/></fixed></tendon>'),
    "a tendon with dry friction": scene(arm(), '<tendon><fixed frictionloss="1"><joint joint="elbow" coef="1"/></fixed></tendon>'),
    "a tendon with armature": scene(arm(), '<tendon><fixed armature="1"><joint joint="elbow" coef="1"/></fixed></tendon>'),
    "a spatial tendon": scene('<site name="w" pos="0 0 1.5"/>' + arm(), '<tendon><spatial stiffness="30"><site site="w"/><site site="tip"/></spatial></tendon>'),
    "a spatial tendon that does nothing": scene('<site name="w" pos="0 0 1.5"/>' + arm(), '<tendon><spatial><site site="w"/><site site="tip"/></spatial></tendon>'),
    "a tendon's range of forces": actuated('<motor tendon="t" gear="2"/>', extra='<tendon><fixed name="t" actuatorfrcrange="-.3 .3" actuatorfrclimited="true"><joint joint="elbow" coef="1"/></fixed></tendon>'),
    "filtered controls": actuated('<general joint="elbow" dyntype="filter" dynprm=".1" gainprm="3"/>'),
    "exact filters": actuated('<general joint="elbow" dyntype="filterexact" dynprm=".1" gainprm="3"/>'),
    "integrated controls": actuated('<intvelocity joint="elbow" kp="5" actrange="-1 1"/>'),
    "a muscle": actuated('<muscle joint="elbow" lengthrange="-1 1" ctrlrange="0 1"/>'),
    "a damper": actuated('<damper joint="elbow" kv="5" ctrlrange="0 1"/>'),
    "a pneumatic cylinder": actuated('<cylinder joint="elbow" timeconst=".1" area=".01"/>'),
    "a motor on a ball joint": actuated('<motor joint="j" gear="1 2 3"/>', '<body pos="0 0 1"><joint name="j" type="ball"/><geom size=".1" pos=".2 0 0"/></body>'),
    "a motor on a free joint": actuated('<motor joint="b" gear="1 2 3 .1 .2 .3"/>', falling()),
    "a motor on a free joint's parent": actuated('<motor jointinparent="b" gear="1 2 3 .1 .2 .3"/>', falling()),
    "a motor in the parent's frame": actuated('<motor jointinparent="elbow" gear="3"/>'),
    "a motor at a site": actuated('<motor site="tip" gear="0 0 1 0 0 0"/>'),
    "adhesion": actuated('<adhesion body="b" gain="3" ctrlrange="0 1"/>', FLOOR + falling(pos="0 0 .1")),
    "a slider and crank": actuated('<motor cranksite="tip" slidersite="w" cranklength=".5" gear="1"/>', '<site name="w" pos="0 0 1.5"/>' + arm()),
    "a disabled group of actuators": actuated('<motor joint="elbow" gear="3" group="2"/>', option='actuatorgroupdisable="2"'),
    "a delayed actuator": actuated('<motor joint="elbow" gear="3" delay=".02" nsample="12"/>'),
    "no islands": scene(walker(), flags='island="disable"'),
    "no passive springs": scene(arm('stiffness="3" damping="1"'), flags='spring="disable"'),
    "no passive damping": scene(arm('stiffness="3" damping="1"'), flags='damper="disable"'),
    "no dry friction": scene(arm('frictionloss=".5"'), flags='frictionloss="disable"'),
    "no middle phase": scene(walker(), flags='midphase="disable"'),
    "no sensors": sensing('<jointpos joint="left"/>').replace("</option>", '<flag sensor="disable"/></option>'),
    "several contacts of convex geoms": scene(walker(), flags='multiccd="enable"'),
    "an override of contacts": scene(walker(), option='o_margin=".05" o_solref=".05 1"', flags='override="enable"'),
    "an inverse that is compared": scene(walker(), flags='fwdinv="enable"'),
    "a discrete inverse": scene(walker(), flags='invdiscrete="enable"'),
    "sleep": scene(walker(), flags='sleep="enable"'),
    "no automatic reset": scene(walker(), flags='autoreset="disable"'),
    "many degrees of freedom": scene("".join(falling(name=f"m{i}", pos=f"{i} 0 1") for i in range(12))),
    "a flexible rope": '<mujoco><worldbody><flexcomp name="f" type="grid" dim="1" count="5 1 1" spacing=".1 .1 .1" radius=".01" pos="0 0 1" mass="1"/></worldbody></mujoco>',
    "a mesh": scene(FLOOR + falling('type="mesh" mesh="m"'), '<asset><mesh name="m" vertex="0 0 0 .2 0 0 0 .2 0 0 0 .2"/></asset>'),
    "a height field": scene('<geom type="hfield" hfield="h"/>' + falling(pos="0 0 .4"), '<asset><hfield name="h" nrow="3" ncol="3" size="1 1 .3 .1" elevation="0 1 0 1 0 1 0 1 0"/></asset>'),
    "nothing that moves": scene(FLOOR),
    "a body in the place of another": scene(falling(name="p", pos="0 0 1") + falling(name="q", pos="0 0 1")),
}  # fmt: skip

_FRAMES = [
    f'<{kind} objtype="{of}" objname="{name}"/>'
    for kind in ("framepos", "framequat", "framexaxis", "frameyaxis", "framezaxis", "framelinvel",
                 "frameangvel", "framelinacc", "frameangacc")
    for of, name in (("body", "left"), ("xbody", "left"), ("geom", "left"), ("site", "site"))
]  # fmt: skip
_RELATIVE = [
    f'<{kind} objtype="body" objname="left" reftype="{of}" refname="{name}"/>'
    for kind in ("framepos", "framequat", "framexaxis", "framelinvel", "frameangvel")
    for of, name in (("site", "site"), ("body", "loose"))
]
SENSORS = [
    *(f'<{kind} site="site"/>' for kind in ("touch", "accelerometer", "velocimeter", "gyro", "magnetometer",
                                             "rangefinder")),
    *(f'<{kind} site="left_shin"/>' for kind in ("touch", "accelerometer", "gyro", "force", "torque")),
    *(f'<{kind} joint="left"/>' for kind in ("jointpos", "jointvel", "jointlimitpos", "jointlimitvel",
                                              "jointlimitfrc", "jointactuatorfrc")),
    *(f'<{kind} tendon="tendon"/>' for kind in ("tendonpos", "tendonvel", "tendonactuatorfrc")),
    *(f'<{kind} actuator="motor"/>' for kind in ("actuatorpos", "actuatorvel", "actuatorfrc")),
    *(f'<{kind} body="trunk"/>' for kind in ("subtreecom", "subtreelinvel", "subtreeangmom")),
    "<clock/>", "<e_potential/>", "<e_kinetic/>",
    '<distance geom1="left" geom2="right" cutoff="2"/>', '<normal geom1="left" geom2="right" cutoff="2"/>',
    '<fromto geom1="left" geom2="right" cutoff="2"/>', '<contact geom1="left" num="2" data="found force"/>',
    '<insidesite site="site" objtype="body" objname="loose"/>',
    '<camprojection site="site" camera="camera"/>',
    '<jointpos joint="left" cutoff=".1"/>', '<touch site="site" cutoff="3"/>', '<gyro site="site" cutoff=".5"/>',
    '<accelerometer site="site" noise=".1"/>', '<framepos objtype="camera" objname="camera"/>',
    *_FRAMES, *_RELATIVE,
]  # fmt: skip
