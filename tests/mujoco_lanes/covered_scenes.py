# SPDX-License-Identifier: Apache-2.0
"""Models with features that lanes step themselves."""

from __future__ import annotations

from mujoco_scenes import FLOOR, actuated, arm, falling, scene, two, walker, with_site

COVERED: dict[str, str] = {
    "springs": scene(arm('stiffness="20" springref=".5"', 'stiffness="3" springref="-.4"')),
    "a sliding spring": scene(
        '<body pos="0 0 1"><joint type="slide" axis="1 0 1" stiffness="9" '
        'springref=".2"/>'
        '<joint type="slide" axis="0 1 .2" stiffness="2"/><geom '
        'size=".1"/></body>'
    ),
    "a reference position": scene(arm('ref=".7" stiffness="5"', 'ref="-.3" springref=".1"')),
    "a joint off the body's origin": scene(arm('pos=".1 .05 -.1"', 'pos="-.05 .02 .03"')),
    "three hinges in a body": scene(
        '<body pos="0 0 1"><joint axis="1 0 0" pos=".1 0 0"/><joint axis="0 1 '
        '0"/>'
        '<joint axis="0 .3 1" pos="0 .1 .1"/><geom type="capsule" size=".05 .2" '
        'pos=".2 .1 0"/></body>'
    ),
    "a ball joint": scene(
        '<body pos="0 0 1"><joint type="ball" damping=".1" armature=".01"/>'
        '<geom type="capsule" size=".05 .2" pos=".1 0 -.2"/><body pos=".1 0 -.4">'
        '<joint type="ball"/><geom type="capsule" size=".04 .1" pos="0 .1 '
        '0"/></body></body>'
    ),
    "a ball joint with RK4": scene(
        '<body pos="0 0 1"><joint type="ball" damping=".1"/>'
        '<geom type="capsule" size=".05 .2" pos=".1 0 -.2"/></body>',
        option='integrator="RK4"',
    ),
    "free joints": scene(falling() + falling('type="capsule" size=".05 .2"', "c", "1 0 1")),
    "a full inertia": scene(
        '<body pos="0 0 1"><freejoint/><inertial pos=".05 .02 .01" mass="2" '
        'fullinertia=".03 .04 .05 .004 -.003 .002"/><geom size=".1" '
        'contype="0"/></body>'
    ),
    "a welded child": scene(
        '<body pos="0 0 1"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 '
        '0 .3 0 0" size=".04"/>'
        '<body pos=".3 0 0" euler=".2 .3 .4"><geom type="box" size=".05 .1 .02" '
        'contype="0" '
        'conaffinity="0"/></body></body>'
    ),
    "limits": scene(arm('range="-.3 .2" limited="true"', 'range="-.5 .5" limited="true"')),
    "limits with a margin": scene(
        arm(
            'range="-.3 .2" limited="true" margin=".1"', 'range="-.5 .5" limited="true" margin=".3"'
        )
    ),
    "a narrow range with both limits near": scene(
        arm('range="-.05 .05" limited="true" margin=".2"')
    ),
    "limits on slides": scene(
        '<body pos="0 0 1"><joint type="slide" axis="1 0 0" range="-.2 .1" '
        'limited="true"/>'
        '<joint type="slide" axis="0 0 1" range="-.1 .3" limited="true" '
        'margin=".02"/>'
        '<geom size=".1"/></body>'
    ),
    "stiffness given as itself": scene(
        arm('range="-.3 .2" limited="true" solreflimit="-500 -20"'), option='timestep=".002"'
    ),
    "contacts with stiffness given as itself": scene(two('solref="-900 -30"', 'solref="-900 -30"')),
    "one stiffness given as itself": scene(two('solref="-900 -30"', 'solref=".03 .8"')),
    "impedance of power 1": scene(
        arm('range="-.3 .2" limited="true" solimplimit=".8 .95 .05 .5 1"')
    ),
    "impedance of power 2": scene(
        arm('range="-.3 .2" limited="true" solimplimit=".7 .95 .05 .4 2"')
    ),
    "impedance of power 3": scene(
        arm('range="-.3 .2" limited="true" solimplimit=".7 .99 .2 .6 3"')
    ),
    "impedance of power 2.5": scene(
        arm('range="-.3 .2" limited="true" solimplimit=".7 .9 .1 .3 2.5"')
    ),
    "a flat impedance": scene(arm('range="-.3 .2" limited="true" solimplimit=".9 .9 .001 .5 2"')),
    "impedance without a width": scene(
        arm('range="-.3 .2" limited="true" solimplimit=".8 .9 0 .5 2"')
    ),
    "a stiff reference that is kept safe": scene(
        arm('range="-.3 .2" limited="true" solreflimit=".001 1"'), option='timestep=".005"'
    ),
    "a stiff reference that is not kept safe": scene(
        arm('range="-.3 .2" limited="true" solreflimit=".008 1"'),
        option='timestep=".005"',
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
    "damping by Euler, not implicit": scene(
        arm('damping="1"', 'damping=".1"'), flags='eulerdamp="disable"'
    ),
    "damping by RK4": scene(arm('damping="1"', 'damping=".2"'), option='integrator="RK4"'),
    "RK4 with contacts": scene(walker(), option='integrator="RK4"'),
    "a fluid": scene(arm(), option='density="1000" viscosity=".5"'),
    "a viscous fluid": scene(arm(), option='viscosity="2"'),
    "a dense fluid": scene(arm(), option='density="500"'),
    "wind": scene(arm(), option='density="1.2" viscosity=".00002" wind="3 -2 1"'),
    "a fluid around free bodies by RK4": scene(
        falling('type="capsule" size=".05 .2"'),
        option='density="900" viscosity=".3" integrator="RK4"',
    ),
    "contacts without friction": scene(
        walker(floor='<geom type="plane" size="9 9 1" condim="1"/>').replace(
            'type="capsule"', 'type="capsule" condim="1"'
        )
    ),
    "contacts with friction": scene(walker()),
    "contacts of which some are without friction": scene(two('condim="1"', 'condim="1"')),
    "a floor of one dimension, a ball of three": scene(
        two('condim="3"', 'condim="1"', '<geom type="plane" size="9 9 1" condim="1"/>')
    ),
    "margins": scene(two('margin=".03"', 'margin=".05"')),
    "priorities": scene(
        two('priority="1" friction=".2" solref=".05 1"', 'friction="2" solimp=".5 .9 .01"')
    ),
    "a priority that lowers dimensions": scene(two('priority="2" condim="1"', 'condim="3"')),
    "solmix": scene(two('solmix="3" solref=".05 1"', 'solmix=".5" solimp=".5 .9 .01"')),
    "solmix of nothing": scene(two('solmix="0" solref=".05 1"', 'solmix="1" solref=".01 .5"')),
    "solmix of nothing on both sides": scene(two('solmix="0" solref=".05 1"', 'solmix="0"')),
    "impratio": scene(walker(), option='impratio="10"'),
    "pairs that are left out": scene(
        walker(),
        '<contact><exclude body1="left" body2="right"/><exclude body1="world" '
        'body2="left"/></contact>',
    ),
    "masks": scene(two('contype="2" conaffinity="4"', 'contype="4" conaffinity="1"')),
    "children that touch parents": scene(walker(), flags='filterparent="disable"'),
    "several trees": scene(
        walker()
        + falling(name="x", pos=".3 .05 .3")
        + falling('type="capsule" size=".07 .2"', "y", "-.3 0 .2")
    ),
    "a heap": scene(
        FLOOR
        + "".join(
            falling(name=f"h{i}", pos=f"{0.03 * i} {0.02 * i} {0.15 * i}") for i in range(1, 6)
        )
    ),
    "islands that rest apart": scene(
        FLOOR
        + "".join(
            falling('type="capsule" size=".1 .2" euler="1.57 0 0"', name=f"h{i}", pos=f"{i} 0 .1")
            for i in range(4)
        )
    ),
    "a sphere and a capsule": scene(
        FLOOR + falling() + falling('type="capsule" size=".08 .2"', "c", ".1 0 .4")
    ),
    "capsules": scene(
        FLOOR
        + falling('type="capsule" size=".08 .2" euler="1.5 0 0"', "d", "0 0 .2")
        + falling('type="capsule" size=".08 .2" euler="0 1.5 0"', "c", ".1 0 .4")
    ),
    "a fixed ball and capsule": scene(
        '<geom size=".3"/><geom type="capsule" fromto=".5 -1 0 .5 1 0" '
        'size=".2"/>'
        + falling(pos=".1 0 .5")
        + falling('type="capsule" size=".05 .2"', "c", ".3 .1 .7")
    ),
    "a tilted floor": scene(
        '<geom type="plane" size="9 9 1" euler=".2 .1 0" pos="0 0 -.1"/>'
        + falling()
        + falling('type="capsule" size=".05 .2"', "c", ".5 0 .3")
    ),
    "two floors": scene(
        FLOOR + '<geom type="plane" size="9 9 1" euler="0 1.2 0" pos="-.3 0 0"/>' + falling()
    ),
    "geoms of one body": scene(
        FLOOR + '<body pos="0 0 .3"><freejoint/><geom size=".1"/>'
        '<geom size=".05" pos=".2 0 0"/><geom type="capsule" size=".03 .1" '
        'pos="-.2 0 0"/></body>' + falling(name="z", pos=".1 0 .6")
    ),
    "PGS": scene(walker(), option='solver="PGS" iterations="50"'),
    "PGS without warm starts": scene(walker(), option='solver="PGS"', flags='warmstart="disable"'),
    "few iterations": scene(walker(), option='iterations="1"'),
    "few steps of the line search": scene(walker(), option='ls_iterations="2"'),
    "a loose tolerance": scene(walker(), option='tolerance="1e-3"'),
    "a loose line search": scene(walker(), option='ls_tolerance=".5"'),
    "no warm starts": scene(walker(), flags='warmstart="disable"'),
    "no gravity": scene(walker(), flags='gravity="disable"'),
    "gravity to a side": scene(walker(), option='gravity="1 2 -3"'),
    "no contacts": scene(walker(), flags='contact="disable"'),
    "no limits": scene(walker(), flags='limit="disable"'),
    "no constraints": scene(walker(), flags='constraint="disable"'),
    "no actuation": actuated('<motor joint="elbow" gear="3"/>').replace(
        "</option>", '<flag actuation="disable"/></option>'
    ),
    "controls that are not clamped": actuated(
        '<motor joint="elbow" gear="3" ctrlrange="-1 1" ctrllimited="true"/>'
    ).replace("</option>", '<flag clampctrl="disable"/></option>'),
    "a motor": actuated('<motor joint="elbow" gear="3" ctrlrange="-.5 1" ctrllimited="true"/>'),
    "a motor without a range": actuated('<motor joint="elbow" gear="-2"/>'),
    "a servo of positions": actuated('<position joint="elbow" kp="30" gear="2" ctrlrange="-1 1"/>'),
    "a damped servo of positions": actuated(
        '<position joint="elbow" kp="30" kv="3" forcerange="-2 1"/>'
    ),
    "a servo of velocities": actuated('<velocity joint="elbow" kv="2" ctrlrange="-3 3"/>'),
    "affine gains and biases": actuated(
        '<general joint="elbow" gainprm="2 .3 .1" biastype="affine" '
        'gaintype="affine" biasprm=".5 -3 -.2" gear="1.5"/>'
    ),
    "a range of forces": actuated(
        '<motor joint="elbow" gear="3" forcerange="-.2 .4" forcelimited="true"/>'
    ),
    "a range of a joint's forces": actuated(
        '<motor joint="elbow" gear="3"/><motor joint="elbow" gear="2"/>',
        arm(elbow='actuatorfrcrange="-.3 .5" actuatorfrclimited="true"'),
    ),
    "a motor on a tendon": actuated(
        '<motor tendon="t" gear="2"/>',
        extra='<tendon><fixed name="t"><joint joint="shoulder" coef=".7"/><joint '
        'joint="elbow" coef="-1.3"/></fixed></tendon>',
    ),
    "a servo on a tendon": actuated(
        '<position tendon="t" kp="20"/>',
        extra='<tendon><fixed name="t"><joint joint="shoulder" coef=".7"/><joint '
        'joint="elbow" coef="-1.3"/></fixed></tendon>',
    ),
    "a tendon along sites": scene(
        '<site name="w" pos="0 0 1.5"/><site name="v" pos=".2 .1 1.2"/>' + arm(),
        '<tendon><spatial><site site="w"/><site site="v"/><site site="tip"/></spatial></tendon>',
    ),
    "a string to the world": scene(
        '<site name="w" pos="0 0 1.5"/>' + arm(),
        '<tendon><spatial limited="true" range=".3 .6"><site site="w"/><site site="tip"/></spatial>'
        "</tendon>",
    ),
    "a string between trees": scene(
        FLOOR
        + with_site("p", falling(name="p"))
        + with_site("q", falling(name="q", pos=".3 0 .2")),
        '<tendon><spatial limited="true" range="0 .35"><site site="p"/><site site="q"/></spatial>'
        "</tendon>",
    ),
    "a soft string between limbs": scene(
        walker(),
        '<tendon><spatial limited="true" range=".3 .5" margin=".05" solreflimit=".05 .8" '
        'solimplimit=".7 .95 .05 .4 2"><site site="left_shin"/><site site="right_shin"/></spatial>'
        "</tendon>",
    ),
    "a string by RK4": scene(
        '<site name="w" pos="0 0 1.5"/>' + arm(),
        '<tendon><spatial limited="true" range="0 .6"><site site="w"/><site site="tip"/></spatial>'
        "</tendon>",
        option='integrator="RK4"',
    ),
    "a string by PGS": scene(
        walker(),
        '<tendon><spatial limited="true" range=".3 .5"><site site="left_shin"/>'
        '<site site="right_shin"/></spatial></tendon>',
        option='solver="PGS"',
    ),
    "a string of which nothing may come": scene(
        '<site name="w" pos="0 0 1.5"/>' + arm(),
        '<tendon><spatial limited="true" range="0 .6"><site site="w"/><site site="tip"/></spatial>'
        "</tendon>",
        flags='limit="disable"',
    ),
    "an energy that is told": scene(walker(), flags='energy="enable"'),
    "a coarse step": scene(walker(), option='timestep=".02"'),
    "a fine step": scene(walker(), option='timestep=".0005"'),
    "a box on a floor": scene(FLOOR + falling('type="box" size=".1 .05 .07"')),
    "an ellipsoid on a floor": scene(FLOOR + falling('type="ellipsoid" size=".1 .05 .07"')),
    "a body in the place of another": scene(
        falling(name="p", pos="0 0 1") + falling(name="q", pos="0 0 1")
    ),
    "boxes and ellipsoids on a slope": scene(
        '<geom type="plane" size="9 9 1" euler=".3 -.1 .2" pos="0 0 -.1"/>'
        + falling('type="box" size=".1 .05 .07" condim="1"', "x", "-1 0 .4")
        + falling('type="ellipsoid" size=".1 .05 .07"', "y", "0 0 .2")
        + falling('type="ellipsoid" size=".1 .2 .07" euler=".4 .3 .2"', "z", "1 0 .2")
    ),
    "boxes and ellipsoids by RK4": scene(
        FLOOR + '<body pos="0 0 .1"><freejoint/><geom type="box" size=".1 .05 .07"/>'
        '<geom type="ellipsoid" size=".1 .05 .07" pos=".2 0 0"/>'
        '<geom type="cylinder" size=".05 .07" pos="-.2 0 0" euler=".5 0 0"/></body>',
        option='integrator="RK4"',
    ),
    "an ellipsoid by PGS": scene(
        FLOOR + falling('type="ellipsoid" size=".1 .05 .07"'), option='solver="PGS"'
    ),
    "a thin box": scene(FLOOR + falling('type="box" size=".3 .2 .001"', pos="0 0 .05")),
    "a cylinder on a floor": scene(FLOOR + falling('type="cylinder" size=".1 .05"')),
}
