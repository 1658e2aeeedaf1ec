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

template <int W>
struct LoopsOf {
  static std::size_t MemoryBytes(const Model& model) {
    Allotment counter(nullptr);
    Stepper<Lanes<W>> stepper(model, counter);
    return counter.used();
  }
  static unsigned Step(const Model& model, std::uint8_t* memory, const Row* rows, int count,
                       const StepOptions& options) {
    Allotment block(memory);
    return Stepper<Lanes<W>>(model, block).Step(rows, count, options);
  }
  static unsigned Forward(const Model& model, std::uint8_t* memory, const Row* rows, const Probe* probes,
                          int count) {
    Allotment block(memory);
    return Stepper<Lanes<W>>(model, block).Forward(rows, probes, count);
  }
  static constexpr Loops kLoops{W, MemoryBytes, Step, Forward};
};

}  // namespace rollouts::lanes::LANES_TARGET
