// SPDX-License-Identifier: Apache-2.0
// The code of the loops, compiled for each target in a namespace of its own: LANES_TARGET is its
// name, LANES_WIDEST the widest vector. Headers of the standard library are included before the
// target is set, so that none of their functions is compiled for it.
namespace rollouts::lanes::LANES_TARGET {

#include "vectors.h"
#include "spatial.h"
#include "work.h"
#include "smooth.h"
#include "contacts.h"
#include "solve.h"
#include "sensors.h"
#include "stepper.h"

// Tells if so few numbers differ that writing only those is worth it.
template <int W>
bool AreVariants(const Model* const* models) {
  const Model& root = models[0]->root();
  bool variants = true;
  for (int lane = 0; lane < W; ++lane) {
    variants &= &models[lane]->root() == &root && models[lane]->num_differs * 4 <= root.num_numbers;
  }
  return variants;
}

template <int W>
void WriteVariants(const Model* const* models, MixedNumbers& mixed) {
  const Model& root = models[0]->root();
  const auto restore = [&](std::size_t i) {
    for (int lane = 0; lane < W; ++lane) mixed.numbers[i * W + lane] = root.numbers[i];
    mixed.is_changed[i] = 0;
  };
  if (mixed.root == root.serial && mixed.width == W) {
    for (std::size_t k = 0; k < mixed.num_changed; ++k) restore(mixed.changed[k]);
  } else {
    for (std::size_t i = 0; i < root.num_numbers; ++i) restore(i);
  }
  mixed.root = root.serial;
  mixed.width = W;
  mixed.num_changed = 0;
  for (int lane = 0; lane < W; ++lane) {
    const Model& variant = *models[lane];
    for (std::size_t k = 0; k < variant.num_differs; ++k) {
      const std::uint32_t i = variant.differs[k];
      mixed.numbers[i * W + lane] = variant.numbers[i];
      if (!mixed.is_changed[i]) mixed.changed[mixed.num_changed++] = i;
      mixed.is_changed[i] = 1;
    }
  }
}

template <int W>
void WriteAll(const Model* const* models, MixedNumbers& mixed) {
  mixed.root = 0;
  for (int lane = 0; lane < W; ++lane) {
    const double* const in = models[lane]->numbers;
    for (std::size_t i = 0; i < models[0]->num_numbers; ++i) mixed.numbers[i * W + lane] = in[i];
  }
}

// Makes one model whose numbers differ by lane, from a model for each lane.
template <typename D>
ModelOf<D> Mix(const Model* const* models, MixedNumbers& numbers) {
  ModelOf<D> mixed;
  const Model& first = *models[0];
  static_cast<Structure&>(mixed) = first;
  mixed.Place(first, reinterpret_cast<D*>(numbers.numbers));
  if (AreVariants<D::kWidth>(models)) {
    WriteVariants<D::kWidth>(models, numbers);
  } else {
    WriteAll<D::kWidth>(models, numbers);
  }
  for (int lane = 0; lane < D::kWidth; ++lane) {
    mixed.springs |= models[lane]->springs;
    mixed.limits_joint_forces |= models[lane]->limits_joint_forces;
    mixed.viscous |= models[lane]->viscous;
    mixed.dense_fluid |= models[lane]->dense_fluid;
  }
  // a computation can be left out only where it changes nothing in all lanes
  mixed.body_offset = mixed.body_turned = mixed.body_inertia_offset = mixed.body_inertia_turned =
      mixed.jnt_offset = mixed.jnt_springs = first.ones;
  return mixed;
}

template <int W>
struct LoopsOf {
  using D = Lanes<W>;
  static std::size_t MemoryBytes(const Model& model) {
    Allotment counter(nullptr);
    Stepper<Model, D> stepper(model, counter);
    return counter.used();
  }
  template <typename Run>
  static unsigned With(const Model* const* models, MixedNumbers& numbers, std::uint8_t* memory, Run&& run) {
    Allotment block(memory);
    bool alike = true;
    for (int lane = 1; lane < W; ++lane) alike &= models[lane] == models[0];
    if (alike) {
      Stepper<ModelOf<double>, D> stepper(*models[0], block);
      return run(stepper);
    }
    const ModelOf<D> mixed = Mix<D>(models, numbers);
    Stepper<ModelOf<D>, D> stepper(mixed, block);
    return run(stepper);
  }
  static unsigned Step(const Model* const* models, MixedNumbers& numbers, std::uint8_t* memory,
                       const Row* rows, int count, const StepOptions& options) {
    return With(models, numbers, memory, [&](auto& stepper) { return stepper.Step(rows, count, options); });
  }
  static unsigned Forward(const Model* const* models, MixedNumbers& numbers, std::uint8_t* memory,
                          const Row* rows, const Probe* probes, int count) {
    return With(models, numbers, memory, [&](auto& stepper) { return stepper.Forward(rows, probes, count); });
  }
  static constexpr Loops kLoops{W, MemoryBytes, Step, Forward};
};

}  // namespace rollouts::lanes::LANES_TARGET
