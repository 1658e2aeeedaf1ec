# SPDX-License-Identifier: Apache-2.0
"""Makes a table of src/engines/mujoco_releases/ from the headers of a release of MuJoCo.

    python native/tools/mujoco_layout.py .../mujoco/include > .../mujoco_4_0.inc

A compiler reads the headers, and refuses a release in which anything of src/engines/mujoco_abi.h
or a type of src/engines/mujoco_release.h is different. The headers of 3.17 and later say what
mj_setConst reads and writes; for older releases --constants-of names headers that say it, and
tests/oracle/test_mujoco_releases.py compares that with what mj_setConst does.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

ENGINES = Path(__file__).resolve().parents[1] / "src" / "engines"
INCLUDES = Path(__file__).resolve().parents[1] / "include"

PROBE = r"""
#include <cstddef>
#include <cstdio>
#include <type_traits>
#include <utility>
#include <mujoco/mujoco.h>
#include <mujoco/mjxmacro.h>
#define mjModel OurModel
#define mjData OurData
#include "mujoco_release.h"
#undef mjModel
#undef mjData
using namespace rollouts;

template <typename T> constexpr const char* kType = std::is_same_v<T, double> ? "kDouble" :
    std::is_same_v<T, float> ? "kFloat" : std::is_same_v<T, int> ? "kInt" :
    std::is_same_v<T, mjtBool> ? "kBool" : "kOther";

#define SAME(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
SAME(kUnknownObject, mjOBJ_UNKNOWN); SAME(kBodyObject, mjOBJ_BODY); SAME(kJointObject, mjOBJ_JOINT);
SAME(kGeomObject, mjOBJ_GEOM); SAME(kSiteObject, mjOBJ_SITE); SAME(kCameraObject, mjOBJ_CAMERA);
SAME(kLightObject, mjOBJ_LIGHT); SAME(kTendonObject, mjOBJ_TENDON);
SAME(kActuatorObject, mjOBJ_ACTUATOR); SAME(kSensorObject, mjOBJ_SENSOR);
SAME(kKeyObject, mjOBJ_KEY); SAME(kRungeKutta, mjINT_RK4);
SAME(kActuationDisabled, mjDSBL_ACTUATION); SAME(kLogWarning, mjLOG_WARNING);
SAME(kLogError, mjLOG_ERROR); SAME(kNumWarnings, mjNWARNING);
SAME(kMostIslands, mjNISLAND);
SAME(mjWARN_INERTIA, 0); SAME(mjWARN_CONTACTFULL, 1); SAME(mjWARN_CNSTRFULL, 2);
SAME(mjWARN_BADQPOS, 3); SAME(mjWARN_BADQVEL, 4); SAME(mjWARN_BADQACC, 5);
SAME(mjWARN_BADCTRL, 6);
SAME(kFreeJoint, mjJNT_FREE); SAME(kBallJoint, mjJNT_BALL);
SAME(kSlideJoint, mjJNT_SLIDE); SAME(kHingeJoint, mjJNT_HINGE);
SAME(offsetof(MujocoLog, level), offsetof(mjLogMessage, level));
SAME(offsetof(MujocoLog, subject), offsetof(mjLogMessage, subject));
SAME(sizeof(MujocoLog::subject), sizeof(mjLogMessage::subject));
SAME(sizeof(MujocoWarning), sizeof(mjWarningStat));
SAME(offsetof(MujocoWarning, number), offsetof(mjWarningStat, number));
SAME(kAllCategories, mjCAT_ALL); SAME(kOffscreenBuffer, mjFB_OFFSCREEN);
SAME(kUsualFont, mjFONTSCALE_150); SAME(kFreeCamera, mjCAMERA_FREE);
SAME(kTrackingCamera, mjCAMERA_TRACKING); SAME(kFixedCamera, mjCAMERA_FIXED);
SAME(sizeof(MujocoCamera), sizeof(mjvCamera));
#define CAMERA(member) SAME(offsetof(MujocoCamera, member), offsetof(mjvCamera, member))
CAMERA(type); CAMERA(fixedcamid); CAMERA(trackbodyid); CAMERA(lookat); CAMERA(distance);
CAMERA(azimuth); CAMERA(elevation); CAMERA(orthographic);
SAME(sizeof(MujocoRect), sizeof(mjrRect));
#define RECT(member) SAME(offsetof(MujocoRect, member), offsetof(mjrRect, member))
RECT(left); RECT(bottom); RECT(width); RECT(height);
static_assert(std::is_same_v<mjtByte, std::uint8_t>);
static_assert(std::is_same_v<decltype(mjrContext::currentBuffer), std::int32_t>);
static_assert(std::is_same_v<mjtSize, std::int64_t> && std::is_same_v<mjtNum, double>);

#define FUNCTION(ours, theirs) \
  static_assert(std::is_same_v<decltype(MujocoApi::ours), decltype(&theirs)>)
FUNCTION(get_cache, mj_getCache); FUNCTION(clear_cache, mj_clearCache);
FUNCTION(load_xml, mj_loadXML); FUNCTION(load_model, mj_loadModel);
FUNCTION(delete_model, mj_deleteModel); FUNCTION(size_model, mj_sizeModel);
FUNCTION(make_data, mj_makeData);
FUNCTION(delete_data, mj_deleteData); FUNCTION(reset_data, mj_resetData);
FUNCTION(reset_data_keyframe, mj_resetDataKeyframe); FUNCTION(set_const, mj_setConst);
FUNCTION(forward, mj_forward); FUNCTION(step, mj_step); FUNCTION(step1, mj_step1);
FUNCTION(step2, mj_step2); FUNCTION(rne_post_constraint, mj_rnePostConstraint);
FUNCTION(state_size, mj_stateSize);
FUNCTION(get_state, mj_getState); FUNCTION(set_state, mj_setState); FUNCTION(full_m, mj_fullM);
FUNCTION(name2id, mj_name2id); FUNCTION(id2name, mj_id2name);
FUNCTION(default_camera, mjv_defaultCamera); FUNCTION(default_option, mjv_defaultOption);
FUNCTION(default_free_camera, mjv_defaultFreeCamera); FUNCTION(default_scene, mjv_defaultScene);
FUNCTION(make_scene, mjv_makeScene); FUNCTION(free_scene, mjv_freeScene);
FUNCTION(update_scene, mjv_updateScene); FUNCTION(default_context, mjr_defaultContext);
FUNCTION(make_context, mjr_makeContext); FUNCTION(free_context, mjr_freeContext);
FUNCTION(resize_offscreen, mjr_resizeOffscreen); FUNCTION(set_buffer, mjr_setBuffer);
FUNCTION(upload_hfield, mjr_uploadHField);
static_assert(std::is_same_v<decltype(&mjr_render),
                             void (*)(mjrRect, mjvScene*, const mjrContext*)>);
static_assert(std::is_same_v<decltype(&mjr_readPixels),
                             void (*)(unsigned char*, float*, mjrRect, const mjrContext*)>);

#define MEMBER(type, owner, member) \
  static_assert(std::is_same_v<type, std::remove_cvref_t<decltype(std::declval<owner>().member)>>)
#define X(type, name, member) MEMBER(type, mjModel, member);
ROLLOUTS_MODEL_PLACES(X)
#undef X
#define X(type, member) MEMBER(type, mjData, member);
ROLLOUTS_DATA_PLACES(X)
#undef X

template <typename T, typename Value>
void Entry(const char* kind, const char* name, std::size_t offset, const char* rows,
           const char* columns, long constant) {
  std::printf("entry %s %s %s %zu %zu %s %s %ld\n", kind, name, kType<Value>, sizeof(Value),
              offset, rows, columns, constant);
}
template <typename M>
void Scalars() {
#define SCALAR(member) if constexpr (requires(M m) { m.member; }) \
    Entry<M, decltype(std::declval<M>().member)>("kDerived", #member, offsetof(M, member), "1", \
                                                 "1", 1);
  @SCALARS@
}

int main() {
  std::printf("version %d\nmodel_bytes %zu\nsaved_state %d\n", mjVERSION_HEADER, sizeof(mjModel),
              static_cast<int>(mjSTATE_INTEGRATION));
  std::printf("data warning %zu\n", offsetof(mjData, warning));
  std::printf("drawing scene_bytes %zu\n", sizeof(mjvScene));
  std::printf("drawing option_bytes %zu\n", sizeof(mjvOption));
  std::printf("drawing context_bytes %zu\n", sizeof(mjrContext));
  std::printf("drawing num_flags %d\n", static_cast<int>(mjNVISFLAG));
  std::printf("drawing flags %zu\n", offsetof(mjvOption, flags));
  std::printf("drawing current_buffer %zu\n", offsetof(mjrContext, currentBuffer));
#define X(type, name, member) std::printf("model " #name " %zu\n", offsetof(mjModel, member));
  ROLLOUTS_MODEL_PLACES(X)
#undef X
#define X(type, member) std::printf("data " #member " %zu\n", offsetof(mjData, member));
  ROLLOUTS_DATA_PLACES(X)
#undef X
#define X(name) std::printf("size " #name " %zu\n", offsetof(mjModel, name));
  MJMODEL_SIZES
#undef X
  static mjModel model;
  const mjModel* const m = &model;
  MJMODEL_POINTERS_PREAMBLE(m)
#define X(type, name, rows, columns) \
  Entry<mjModel, type>("kArray", #name, offsetof(mjModel, name), #rows, #columns, columns);
  MJMODEL_POINTERS
#undef X
#define X(type, name, count) Entry<mjModel, type>("kOption", "opt." #name, \
    offsetof(mjModel, opt) + offsetof(mjOption, name), #count, "1", count);
#define XVEC X
  MJOPTION_FIELDS
#undef XVEC
#undef X
#define X(name, count) Entry<mjModel, mjtNum>("kDerived", "stat." #name, \
    offsetof(mjModel, stat) + offsetof(mjStatistic, name), #count, "1", count);
#define XVEC X
  MJSTATISTIC_FIELDS
  Scalars<mjModel>();
}
"""


def constants_uses(include: Path) -> tuple[dict[str, tuple[bool, bool]], list[str]]:
    """Array -> (is read, is written) by mj_setConst; and the names of scalars that it writes."""
    text = (include / "mujoco" / "mjxmacro.h").read_text()
    arrays = re.search(r"#define MJSETCONST_ARRAYS(.*?[^\\])\n\n", text, re.DOTALL)
    scalars = re.search(r"#define MJSETCONST_SCALARS(.*?[^\\])\n\n", text, re.DOTALL)
    if not arrays or not scalars:
        sys.exit(f"{include} does not say what mj_setConst uses: pass --constants-of")
    uses = {}
    for name, *groups in re.findall(r"X\(" + r"\s*(\w+)\s*," * 4 + r"\s*(\w+)\s*\)", arrays[1]):
        used = [group for group in groups if group != "0"]
        uses[name] = ("IN" in used[0], any("OUT" in group for group in used))
    return uses, re.findall(r"X\(\s*(\w+)\s*\)", scalars[1])


def probe(include: Path, scalars: list[str]) -> list[list[str]]:
    """Compiles and runs PROBE; returns its lines, each split into words."""
    lines = "\n".join(f"SCALAR({name})" for name in scalars)
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "probe.cpp"), Path(folder, "probe")
        source.write_text(PROBE.replace("@SCALARS@", lines))
        folders = [f"-I{include}", f"-I{ENGINES}", f"-I{INCLUDES}"]
        command = ["c++", "-std=c++20", "-Wno-invalid-offsetof", *folders, str(source)]
        subprocess.run([*command, "-o", str(program)], check=True)
        output = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    return [line.split() for line in output.splitlines()]


def extent(text: str, constant: str, sizes: dict[str, str]) -> str:
    """`MJ_M(nmocap)*3` as `{3, nmocap}`, `nbody` as `{1, nbody}`, `mjNREF` as `{2}`."""
    name = re.sub(r"MJ_M\((\w+)\)", r"\1", text)
    size, _, times = name.partition("*")
    return f"{{{times or 1}, {size}}}" if size in sizes else f"{{{constant}}}"


def folded(text: str) -> str:
    return textwrap.fill(text, 98, initial_indent="    ", subsequent_indent="    ")


def table(include: Path, constants_of: Path) -> str:
    """The text of a table."""
    uses, scalars = constants_uses(constants_of)
    lines = probe(include, scalars)
    facts = {line[0]: line[1] for line in lines if len(line) == 2}
    places = {
        kind: folded(", ".join(f".{line[1]}={{{line[2]}}}" for line in lines if line[0] == kind))
        for kind in ("model", "data", "drawing")
    }
    sizes = {line[1]: line[2] for line in lines if line[0] == "size"}
    entries = []
    for _, kind, name, value, num_bytes, offset, rows, columns, constant in (
        line for line in lines if line[0] == "entry"
    ):
        read, written = uses.get(name, (False, False)) if kind == "kArray" else (False, False)
        read |= kind == "kOption"
        written |= kind == "kDerived"
        shape = (
            f"{extent(rows, '1', sizes)}, {extent(columns, constant, sizes)}"
            if kind == "kArray"
            else f"{{{constant}}}, {{1}}"
        )
        flags = ", true, true" if read and written else ", true" if read else ""
        if written and not read:
            flags = ", false, true"
        entries.append(
            f'    {{"{name}", {kind}, {value}, {num_bytes}, {offset}, {shape}{flags}}},\n'
        )
    number = int(facts["version"]) // 1000 * 1000
    release = f"{number // 1_000_000}.{number // 1000 % 1000}"
    named = folded(", ".join(f"{name}={offset}" for name, offset in sizes.items()))
    return (
        "// SPDX-License-Identifier: Apache-2.0\n"
        f"// MuJoCo {release}. Made by native/tools/mujoco_layout.py.\n"
        f"namespace mujoco_{release.replace('.', '_')} {{\n"
        f"enum : std::int32_t {{\n{named}}};\n"
        f"constexpr ModelEntry kEntries[] = {{\n{''.join(entries)}}};\n"
        "constexpr MujocoRelease kRelease = {\n"
        f'    .name = "{release}", .number = {number},\n'
        f"    .model_bytes = {facts['model_bytes']}, .saved_state = {facts['saved_state']},\n"
        f"    .model = {{\n{places['model']}}},\n"
        f"    .data = {{\n{places['data']}}},\n"
        f"    .drawing = {{\n{places['drawing']}}},\n"
        "    .entries = kEntries};\n"
        "}  // namespace\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("include", type=Path, help="a release's include/")
    parser.add_argument("--constants-of", type=Path, help="include/ of a later release")
    arguments = parser.parse_args()
    print(table(arguments.include, arguments.constants_of or arguments.include), end="")


if __name__ == "__main__":
    main()
