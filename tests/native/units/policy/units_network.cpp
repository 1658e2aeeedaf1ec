// SPDX-License-Identifier: Apache-2.0
// policy/network.h: what a program must be, where its registers lie, how its weights are packed.
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "rollouts/support/errors.h"
#include "units.h"
#include "units_policy.h"

namespace rollouts::policy {
namespace {

using units::MessageOf;

// A program of four observed features and these operations, the last of which is its output.
Program ProgramOf(std::vector<Op> ops, std::vector<Param> params = {}) {
  const auto last = static_cast<std::int32_t>(ops.size());
  return {.obs_size = 4, .ops = std::move(ops), .params = std::move(params), .outputs = {last}};
}

std::string Said(const Program& program) {
  return MessageOf<SpecError>([&] { Network{program}; });
}

// The fault of the only operation of a network.
std::string SaidOf(Op op, std::vector<Param> params = {}) {
  const std::string said = Said(ProgramOf({std::move(op)}, std::move(params)));
  CHECK(said.starts_with("operation 0 of a network ("));
  return said.substr(std::string("operation 0 of a network ").size());
}

TEST(Network, NamesAreThoseOfTheOperations) {
  CHECK(OpKindOf("gelu_tanh") == OpKind::kGeluTanh);
  CHECK(OpKindOf("slice") == OpKind::kSlice);
  // laying out makes copies, nobody asks for them
  CHECK_EQ(MessageOf<SpecError>([] { OpKindOf("copy"); }), "'copy' is no operation of a network");
}

TEST(Network, AProgramWithoutFeaturesOrOutputsIsRefused) {
  Program program = ProgramOf({MakeOp(OpKind::kTanh, {0}, 4)});
  program.obs_size = 0;
  CHECK_EQ(Said(program), "a network's observation has no features");
  program = ProgramOf({MakeOp(OpKind::kTanh, {0}, 4)});
  program.outputs = {};
  CHECK_EQ(Said(program), "a network has no outputs");
  program.outputs = {1, 2};
  CHECK_EQ(Said(program), "a network's output 2 is no register");
  program.outputs = {-1};
  CHECK_EQ(Said(program), "a network's output -1 is no register");
}

TEST(Network, StatesStandBehindTheObservationAndBecomeTheLastOutputs) {
  Program program =
      ProgramOf({MakeOp(OpKind::kTanh, {0}, 7), MakeOp(OpKind::kSlice, {1}, 3, {}, {0})});
  program.states = {3};
  program.outputs = {1, 2};
  const Network network(program);
  CHECK_EQ(network.input_size(), 7);
  CHECK_EQ(network.state_size(), 3);
  CHECK_EQ(network.num_outputs(), std::size_t{1});
  CHECK_EQ(network.output_size(1), 3);
  program.outputs = {2};
  CHECK_EQ(Said(program), "a network has no outputs besides its states");
  program.outputs = {2, 1};
  CHECK_EQ(Said(program), "state 0 of a network has 3 features and becomes one of 7");
}

TEST(Network, TheOperationThatIsWrongIsNamedByItsPlace) {
  const Program program = ProgramOf({MakeOp(OpKind::kTanh, {0}, 4), MakeOp(OpKind::kAdd, {1}, 4)});
  CHECK_EQ(Said(program), "operation 1 of a network (add) has 1 inputs, expected 2");
}

TEST(Network, RegistersAndParametersThatThereAreNotAreRefused) {
  CHECK_EQ(SaidOf(MakeOp(OpKind::kTanh, {0}, 0)), "(tanh) writes no features");
  CHECK_EQ(SaidOf(MakeOp(OpKind::kTanh, {}, 4)), "(tanh) has 0 inputs, expected 1");
  CHECK_EQ(SaidOf(MakeOp(OpKind::kLiteral, {0}, 1, {}, {1})), "(literal) has 1 inputs, expected 0");
  const std::string early = "reads a register that is not yet written";
  CHECK_EQ(SaidOf(MakeOp(OpKind::kTanh, {1}, 4)), "(tanh) " + early);
  CHECK_EQ(SaidOf(MakeOp(OpKind::kMul, {0, -1}, 4)), "(mul) " + early);
  const std::string missing = "reads a parameter that there is not";
  CHECK_EQ(SaidOf(MakeOp(OpKind::kConstant, {}, 4, {1}), {{"a", 4}}), "(constant) " + missing);
  CHECK_EQ(SaidOf(MakeOp(OpKind::kConstant, {}, 4, {-1}), {{"a", 4}}), "(constant) " + missing);
}

TEST(Network, WeightsOfALayerFitItsSizes) {
  const std::string said = "(linear) has weights that do not fit its sizes";
  const std::vector<Param> params{{"w", 12}, {"b", 3}, {"other", 11}};
  for (const std::vector<std::int32_t>& given :
       std::vector<std::vector<std::int32_t>>{{}, {2}, {0, 0}, {0, 2}, {1, 0}, {0, 1, 1}}) {
    CHECK_EQ(SaidOf(MakeOp(OpKind::kLinear, {0}, 3, given), params), said);
  }
  Network{ProgramOf({MakeOp(OpKind::kLinear, {0}, 3, {0, 1})}, params)};
  Network{ProgramOf({MakeOp(OpKind::kLinear, {0}, 3, {0})}, params)};
}

TEST(Network, ANormalisationKeepsItsSize) {
  const std::vector<Param> params{{"gain", 4}, {"bias", 4}, {"odd", 3}};
  const auto said = [&](std::int32_t size, std::vector<std::int32_t> given,
                        std::vector<float> numbers) {
    return SaidOf(MakeOp(OpKind::kLayerNorm, {0}, size, std::move(given), std::move(numbers)), params);
  };
  CHECK_EQ(said(4, {0, 1}, {}), "(layer_norm) has 0 numbers, expected 1");
  CHECK_EQ(said(3, {2, 2}, {1}), "(layer_norm) writes another size than it reads");
  CHECK_EQ(said(4, {0, 1, 1}, {1}), "(layer_norm) has more than a gain and a bias");
  CHECK_EQ(said(4, {0, 2}, {1}), "(layer_norm) has weights that do not fit its size");
  Network{ProgramOf({MakeOp(OpKind::kLayerNorm, {0}, 4, {}, {1})})};
}

TEST(Network, ATableIsReadByOneNumber) {
  const std::string said = "(embedding) has a table that does not fit";
  const std::vector<Param> params{{"table", 12}, {"odd", 13}};
  CHECK_EQ(SaidOf(MakeOp(OpKind::kEmbedding, {0}, 3, {0}), params), said);  // by four numbers
  const auto by_one = [&](std::vector<std::int32_t> given) {
    return ProgramOf({MakeOp(OpKind::kSlice, {0}, 1, {}, {0}),
                      MakeOp(OpKind::kEmbedding, {1}, 3, std::move(given))}, params);
  };
  for (const auto& given : std::vector<std::vector<std::int32_t>>{{}, {1}, {0, 0}}) {
    CHECK_EQ(Said(by_one(given)), "operation 1 of a network " + said);
  }
  const Network network(by_one({0}));
  CHECK_EQ(network.instructions().back().b_size, 4);  // rows of the table
}

TEST(Network, ConstantsAndLiteralsHaveTheirSize) {
  const std::vector<Param> params{{"a", 4}};
  const std::string said = "(constant) has a parameter of another size";
  CHECK_EQ(SaidOf(MakeOp(OpKind::kConstant, {}, 3, {0}), params), said);
  CHECK_EQ(SaidOf(MakeOp(OpKind::kConstant, {}, 4, {0, 0}), params), said);
  CHECK_EQ(SaidOf(MakeOp(OpKind::kConstant, {}, 4), params), said);
  CHECK_EQ(SaidOf(MakeOp(OpKind::kLiteral, {}, 3, {}, {1, 2})),
           "(literal) has 2 numbers, expected 3");
}

TEST(Network, WhatIsJoinedOrCutOutFitsItsInputs) {
  CHECK_EQ(SaidOf(MakeOp(OpKind::kConcat, {0, 0}, 7)),
           "(concat) writes another size than its inputs have together");
  const std::string beyond = "(slice) reads beyond its input";
  CHECK_EQ(SaidOf(MakeOp(OpKind::kSlice, {0}, 2, {}, {3})), beyond);
  CHECK_EQ(SaidOf(MakeOp(OpKind::kSlice, {0}, 2, {}, {-1})), beyond);
  CHECK_EQ(SaidOf(MakeOp(OpKind::kSlice, {0}, 2)), "(slice) has 0 numbers, expected 1");
  Network{ProgramOf({MakeOp(OpKind::kSlice, {0}, 2, {}, {2})})};
}

TEST(Network, ElementwiseOperationsHaveTheirNumbersAndSizes) {
  CHECK_EQ(SaidOf(MakeOp(OpKind::kElu, {0}, 4)), "(elu) has 0 numbers, expected 1");
  CHECK_EQ(SaidOf(MakeOp(OpKind::kLeakyRelu, {0}, 4, {}, {1, 2})),
           "(leaky_relu) has 2 numbers, expected 1");
  CHECK_EQ(SaidOf(MakeOp(OpKind::kClamp, {0}, 4, {}, {1})), "(clamp) has 1 numbers, expected 2");
  CHECK_EQ(SaidOf(MakeOp(OpKind::kScale, {0}, 4, {}, {1})), "(scale) has 1 numbers, expected 2");
  CHECK_EQ(SaidOf(MakeOp(OpKind::kExp, {0}, 1)), "(exp) writes another size than it reads");
  CHECK_EQ(SaidOf(MakeOp(OpKind::kSub, {0, 0}, 8)), "(sub) writes another size than it reads");
  // one of two inputs may have a single feature, but not a lone input
  const Op one = MakeOp(OpKind::kSlice, {0}, 1, {}, {0});
  Network{ProgramOf({one, MakeOp(OpKind::kDiv, {1, 0}, 4)})};
  Network{ProgramOf({one, MakeOp(OpKind::kDiv, {0, 1}, 4)})};
  CHECK_EQ(Said(ProgramOf({one, MakeOp(OpKind::kTanh, {1}, 4)})),
           "operation 1 of a network (tanh) writes another size than it reads");
}

// -- where registers lie -----------------------------------------------------------------------

std::vector<std::int32_t> RowsWritten(const Network& network) {
  std::vector<std::int32_t> rows;
  for (const Instruction& step : network.instructions()) rows.push_back(step.out);
  return rows;
}

using Rows = std::vector<std::int32_t>;

const Op kLayer = MakeOp(OpKind::kLinear, {0}, 6, {0});
const std::vector<Param> kWeights{{"w", 24}};

TEST(Network, AChainOfElementwiseOperationsTakesTheRowsOfItsFirst) {
  const Network network(ProgramOf({kLayer, MakeOp(OpKind::kTanh, {1}, 6),
                                   MakeOp(OpKind::kScale, {2}, 6, {}, {2, 0})}, kWeights));
  CHECK(RowsWritten(network) == (Rows{4, 4, 4}));
  CHECK_EQ(network.num_rows(), 10);
  CHECK_EQ(network.output_row(0), 4);
  CHECK_EQ(network.output_size(0), 6);
}

TEST(Network, TheObservationIsNeverWrittenOver) {
  const Network network(ProgramOf({MakeOp(OpKind::kTanh, {0}, 4)}));
  CHECK(RowsWritten(network) == Rows{4});
  CHECK_EQ(network.num_rows(), 8);
}

TEST(Network, WhatAnotherOperationReadsIsKept) {
  // the sum may write over the tanh, which nobody else reads, and not over the layer
  const std::vector<Op> ops{kLayer, MakeOp(OpKind::kTanh, {1}, 6), MakeOp(OpKind::kAdd, {2, 1}, 6)};
  CHECK(RowsWritten(Network(ProgramOf(ops, kWeights))) == (Rows{4, 10, 10}));
  std::vector<Op> turned = ops;
  turned[2].inputs = {1, 2};
  CHECK(RowsWritten(Network(ProgramOf(turned, kWeights))) == (Rows{4, 10, 16}));
}

TEST(Network, WhatIsReadTwiceByOneOperationIsKept) {
  const Network network(ProgramOf({kLayer, MakeOp(OpKind::kMul, {1, 1}, 6)}, kWeights));
  CHECK(RowsWritten(network) == (Rows{4, 10}));
}

TEST(Network, AnOutputIsKeptWhoeverReadsIt) {
  Program program = ProgramOf({kLayer, MakeOp(OpKind::kTanh, {1}, 6)}, kWeights);
  program.outputs = {2, 1, 2, 0};
  const Network network(program);
  CHECK(RowsWritten(network) == (Rows{4, 10}));
  CHECK_EQ(network.num_outputs(), std::size_t{4});
  CHECK_EQ(network.output_row(0), 10);
  CHECK_EQ(network.output_row(1), 4);
  CHECK_EQ(network.output_row(2), 10);
  CHECK_EQ(network.output_row(3), 0);
  CHECK_EQ(network.output_size(3), 4);
}

TEST(Network, ANumberThatMeetsManyIsNoPlaceForThem) {
  // the first input has one feature, the result six
  const Network network(ProgramOf({MakeOp(OpKind::kLinear, {0}, 1, {1}), kLayer,
                                   MakeOp(OpKind::kSub, {1, 2}, 6)},
                                  {{"w", 24}, {"v", 4}}));
  CHECK(RowsWritten(network) == (Rows{4, 5, 11}));
}

TEST(Network, ASliceIsAViewAndNoInstruction) {
  const Network network(ProgramOf({kLayer, MakeOp(OpKind::kSlice, {1}, 4, {}, {1}),
                                   MakeOp(OpKind::kSlice, {2}, 2, {}, {2})}, kWeights));
  CHECK_EQ(network.instructions().size(), std::size_t{1});
  CHECK_EQ(network.num_rows(), 10);
  CHECK_EQ(network.output_row(0), 4 + 1 + 2);
  CHECK_EQ(network.output_size(0), 2);
}

TEST(Network, AViewIsNotWrittenOver) {
  Program program = ProgramOf({kLayer, MakeOp(OpKind::kSlice, {1}, 3, {}, {1}),
                               MakeOp(OpKind::kTanh, {2}, 3)}, kWeights);
  program.outputs = {3, 1};
  const Network network(program);
  CHECK(RowsWritten(network) == (Rows{4, 10}));
  CHECK_EQ(network.instructions()[1].a, 5);
}

TEST(Network, WhatAViewShowsIsNotWrittenOver) {
  Program program = ProgramOf({kLayer, MakeOp(OpKind::kSlice, {1}, 3, {}, {0}),
                               MakeOp(OpKind::kTanh, {1}, 6)}, kWeights);
  program.outputs = {2, 3};
  CHECK(RowsWritten(Network(program)) == (Rows{4, 10}));
}

TEST(Network, WhatIsJoinedIsCopied) {
  const Network network(ProgramOf({kLayer, MakeOp(OpKind::kConcat, {1, 0, 1}, 16)}, kWeights));
  const auto steps = network.instructions();
  CHECK_EQ(steps.size(), std::size_t{4});
  CHECK(RowsWritten(network) == (Rows{4, 10, 16, 20}));
  for (std::size_t i = 1; i < 4; ++i) CHECK(steps[i].kind == OpKind::kCopy);
  CHECK((Rows{steps[1].a, steps[2].a, steps[3].a}) == (Rows{4, 0, 4}));
  CHECK((Rows{steps[1].size, steps[2].size, steps[3].size}) == (Rows{6, 4, 6}));
  CHECK_EQ(network.num_rows(), 26);
}

// -- packed weights ----------------------------------------------------------------------------

std::vector<float> Counting(std::size_t size, float first = 1) {
  std::vector<float> numbers(size);
  for (std::size_t i = 0; i < size; ++i) numbers[i] = first + static_cast<float>(i);
  return numbers;
}

TEST(Network, OutputsArePackedInTheLargestBlockThatIsHalfFilled) {
  const Rows blocks{4, 4, 4, 4, 8, 8, 8, 8, 16, 16};
  for (std::int32_t left = 1; left <= 10; ++left) CHECK_EQ(LinearBlock(left), blocks[left - 1]);
  CHECK_EQ(LinearBlock(16), 16);
  CHECK_EQ(LinearBlock(1000), 16);
}

TEST(Network, AMatrixIsPackedByBlockInputAndOutput) {
  for (const std::int32_t outputs : {1, 4, 5, 16, 17, 21, 25, 40}) {
    const Network network(ProgramOf({MakeOp(OpKind::kLinear, {0}, outputs, {0})},
                                    {{"w", 4 * std::int64_t{outputs}}}));
    const std::vector<float> w = Counting(4 * static_cast<std::size_t>(outputs));
    const std::vector<float> packed = Packed(network, {w});
    std::vector<float> expected;
    for (std::int32_t first = 0; first < outputs;) {
      const std::int32_t left = outputs - first;
      const std::int32_t block = left > 8 ? 16 : left > 4 ? 8 : 4;
      for (std::int32_t k = 0; k < 4; ++k) {
        for (std::int32_t o = first; o < first + block; ++o) {
          expected.push_back(o < outputs ? w[static_cast<std::size_t>(o * 4 + k)] : 0);
        }
      }
      first += block;
    }
    CHECK(expected.size() <= packed.size());
    CHECK_EQ(network.instructions()[0].weight, 0);
    // and zeros behind the last block
    expected.resize(packed.size());
    CHECK(packed == expected);
  }
}

TEST(Network, EveryArrayHasItsOwnCacheLinesAndABiasABlock) {
  const Program program = ProgramOf(
      {MakeOp(OpKind::kLinear, {0}, 17, {0, 1}), MakeOp(OpKind::kLiteral, {}, 17, {}, Counting(17, 500)),
       MakeOp(OpKind::kAdd, {1, 2}, 17), MakeOp(OpKind::kLayerNorm, {3}, 17, {1, 1}, {1})},
      {{"w", 68}, {"b", 17}});
  const Network network(program);
  const std::vector<float> packed = Packed(network, {Counting(68), Counting(17, 100)});
  CHECK_EQ(static_cast<std::int64_t>(packed.size()), network.num_packed());
  std::set<std::int64_t> offsets;
  const auto holds = [&](std::int64_t offset, float first) {
    CHECK_EQ(offset % 16, 0);
    CHECK(offsets.insert(offset).second);
    for (std::int64_t i = 0; i < 32; ++i) {
      CHECK_EQ(packed[static_cast<std::size_t>(offset + i)], i < 17 ? first + static_cast<float>(i) : 0);
    }
  };
  const auto steps = network.instructions();
  holds(steps[0].bias, 100);
  holds(steps[1].weight, 500);
  // read twice, as gain and as bias: packed for each
  holds(steps[3].weight, 100);
  holds(steps[3].bias, 100);
  CHECK_EQ(steps[1].bias, -1);
  CHECK_EQ(steps[2].weight, -1);
}

TEST(Network, ParametersThatDoNotFitAreNamed) {
  const Network network(ProgramOf({MakeOp(OpKind::kLinear, {0}, 2, {0, 1})}, {{"w", 8}, {"b", 2}}));
  const auto said = [&](const Arrays& arrays) {
    return MessageOf<SpecError>([&] { Packed(network, arrays); });
  };
  CHECK_EQ(said({Counting(8)}), "a network got 1 parameters, expected 2");
  CHECK_EQ(said({Counting(8), Counting(3)}), "parameter 'b' has 3 numbers, expected 2");
  using Limits = std::numeric_limits<float>;
  for (const float bad : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
    Arrays arrays{Counting(8), Counting(2)};
    arrays[1][0] = bad;
    CHECK_EQ(said(arrays), "parameter 'b' has a value that is nan or infinite");
    arrays = {Counting(8), Counting(2)};
    arrays[0][7] = bad;
    CHECK_EQ(said(arrays), "parameter 'w' has a value that is nan or infinite");
  }
  // the largest finite number is none of these
  CHECK_EQ(Packed(network, {Counting(8), {Limits::max(), -Limits::max()}}).size(),
           static_cast<std::size_t>(network.num_packed()));
}

}  // namespace
}  // namespace rollouts::policy
