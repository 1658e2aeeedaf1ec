// SPDX-License-Identifier: Apache-2.0
#include "observation.h"

#include <algorithm>

#include "rollouts/support/errors.h"

namespace rollouts {
namespace {

AtariScreen::Options ScreenOptions(const Atari::Config& config, const AtariGame& game) {
  return {.raw_height = game.screen_height(),
          .raw_width = game.screen_width(),
          .height = config.img_height,
          .width = config.img_width,
          .stack_num = config.stack_num,
          .grayscale = config.grayscale,
          .maxpool = config.maxpool,
          .resize_by_area = config.use_inter_area_resize};
}

}  // namespace

void AtariRamStack::Clear() { std::fill(bytes_.begin(), bytes_.end(), std::uint8_t{0}); }

void AtariRamStack::Push(std::span<const std::uint8_t, kBytes> ram) {
  std::copy(bytes_.begin() + kBytes, bytes_.end(), bytes_.begin());
  std::copy(ram.begin(), ram.end(), bytes_.end() - kBytes);
}

AtariObservation::AtariObservation(const Atari::Config& config, const AtariGame& game) {
  if (config.obs_type == "ram") {
    ram_.emplace(config.stack_num);
  } else {
    screen_.emplace(ScreenOptions(config, game), game.palette());
  }
}

SpaceSpec AtariObservation::Space(const Atari::Config& config) {
  SpaceSpec space{.dtype = DType::kUint8};
  space.high[0] = 255;
  space.shape[0] = config.stack_num;
  if (config.obs_type == "ram") {
    space.ndim = 2;
    space.shape[1] = AtariRamStack::kBytes;
    return space;
  }
  // gray frames have no colour axis
  space.ndim = config.grayscale ? 3 : 4;
  const std::int32_t frame[] = {config.img_height, config.img_width, 3};
  std::copy_n(frame, space.ndim - 1, space.shape + 1);
  return space;
}

void AtariObservation::Clear() { screen_ ? screen_->Clear() : ram_->Clear(); }

void AtariObservation::CaptureEarlier(const AtariEmulator& emulator) {
  if (screen_) screen_->CaptureEarlier(emulator.Screen());
}

void AtariObservation::CaptureLast(const AtariEmulator& emulator) {
  if (screen_) screen_->CaptureLast(emulator.Screen());
}

void AtariObservation::Push(const AtariEmulator& emulator) {
  screen_ ? screen_->Push() : ram_->Push(emulator.Ram());
}

void AtariObservation::Observe(std::uint8_t* obs) const {
  if (screen_) {
    screen_->Observe(obs);
  } else {
    std::copy(ram_->bytes().begin(), ram_->bytes().end(), obs);
  }
}

void AtariObservation::Save(StateWriter& writer) const {
  screen_ ? screen_->Save(writer) : writer.PutBytes(ram_->bytes());
}

void AtariObservation::Load(StateReader& reader) {
  if (screen_) return screen_->Load(reader);
  const auto bytes = reader.GetBytes(ram_->bytes().size());
  if (!reader.rest().empty()) throw SpecError("does not fit the stack of memories");
  std::copy(bytes.begin(), bytes.end(), ram_->bytes().begin());
}

}  // namespace rollouts
