// SPDX-License-Identifier: Apache-2.0
// The text of the loops, compiled for each target in a namespace of its own: LANES_TARGET names it,
// LANES_WIDEST is its widest vector. Headers of the standard library are included before the target is
// set, so that none of their functions is compiled for it.
namespace rollouts::lanes::LANES_TARGET {

#include "vectors.h"
#include "spatial.h"
#include "work.h"
#include "smooth.h"
#include "contacts.h"
#include "solve.h"
#include "sensors.h"
#include "stepper.h"

// A model whose numbers differ by lane, from one model for each lane.
template <typename D>
ModelOf<D> Mix(const Model* const* models, D* numbers) {
  ModelOf<D> mixed;
  const Model& first = *models[0];
  static_cast<Structure&>(mixed) = first;
  mixed.Place(first, numbers);
  double* const out = Numbers(numbers);
  for (int lane = 0; lane < D::kWidth; ++lane) {
    const double* const in = models[lane]->numbers;
    for (std::size_t i = 0; i < first.num_numbers; ++i) out[i * D::kWidth + lane] = in[i];
    mixed.springs |= models[lane]->springs;
    mixed.limits_joint_forces |= models[lane]->limits_joint_forces;
    mixed.viscous |= models[lane]->viscous;
    mixed.dense_fluid |= models[lane]->dense_fluid;
  }
  // a zero of one lane saves nothing where another has none
  mixed.body_offset = mixed.body_turned = mixed.body_inertia_offset = mixed.body_inertia_turned =
      mixed.jnt_offset = mixed.jnt_springs = first.ones;
  return mixed;
}

template <int W>
struct LoopsOf {
  using D = Lanes<W>;
  static std::size_t MemoryBytes(const Model& model) {
    Allotment counter(nullptr);
    counter.Take<D>(model.num_numbers);
    Stepper<Model, D> stepper(model, counter);
    return counter.used();
  }
  template <typename Run>
  static unsigned With(const Model* const* models, std::uint8_t* memory, Run&& run) {
    Allotment block(memory);
    bool alike = true;
    for (int lane = 1; lane < W; ++lane) alike &= models[lane] == models[0];
    if (alike) {
      Stepper<ModelOf<double>, D> stepper(*models[0], block);
      return run(stepper);
    }
    const ModelOf<D> mixed = Mix(models, block.Take<D>(models[0]->num_numbers));
    Stepper<ModelOf<D>, D> stepper(mixed, block);
    return run(stepper);
  }
  static unsigned Step(const Model* const* models, std::uint8_t* memory, const Row* rows, int count,
                       const StepOptions& options) {
    return With(models, memory, [&](auto& stepper) { return stepper.Step(rows, count, options); });
  }
  static unsigned Forward(const Model* const* models, std::uint8_t* memory, const Row* rows,
                          const Probe* probes, int count) {
    return With(models, memory, [&](auto& stepper) { return stepper.Forward(rows, probes, count); });
  }
  static constexpr Loops kLoops{W, MemoryBytes, Step, Forward};
};

}  // namespace rollouts::lanes::LANES_TARGET
