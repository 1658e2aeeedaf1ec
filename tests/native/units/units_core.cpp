// SPDX-License-Identifier: Apache-2.0
// core/: random streams, elementary functions, spaces; support/: saved states.
#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <vector>

#include "rollouts/core/math.h"
#include "rollouts/core/rng.h"
#include "rollouts/core/spec.h"
#include "rollouts/core/switch.h"
#include "rollouts/replay/table_random.h"
#include "rollouts/support/errors.h"
#include "rollouts/support/state.h"
#include "units.h"

namespace rollouts {
namespace {

// Test vectors of Salmon's Random123, philox 4x32-10.
TEST(Philox, GivesTheWordsOfItsAuthors) {
  const auto words = [](std::array<std::uint32_t, 4> counter, std::uint32_t key0,
                        std::uint32_t key1) {
    const PhiloxBlock block =
        Philox4x32(PhiloxBlock{{counter[0], counter[1], counter[2], counter[3]}}, key0, key1);
    return std::array<std::uint32_t, 4>{block.word[0], block.word[1], block.word[2], block.word[3]};
  };
  const std::array<std::uint32_t, 4> zeros{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  CHECK(words({0, 0, 0, 0}, 0, 0) == zeros);
  const std::uint32_t f = 0xffffffff;
  const std::array<std::uint32_t, 4> ones{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  CHECK(words({f, f, f, f}, f, f) == ones);
  const std::array<std::uint32_t, 4> pi{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  CHECK(words({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0) == pi);
}

TEST(Rng, GoesOnFromAnyNumberOfDraws) {
  Rng whole(7, 3, 2);
  for (std::uint32_t draws = 0; draws < 40; ++draws) {
    Rng resumed(7, 3, 2, draws);
    CHECK_EQ(whole.draws(), draws);
    const std::uint32_t word = whole.NextWord();
    CHECK_EQ(resumed.NextWord(), word);
    CHECK_EQ(resumed.draws(), draws + 1);
  }
}

TEST(Rng, StreamsOfSeedsEnvironmentsAndEpisodesDiffer) {
  std::set<std::uint32_t> firsts;
  std::size_t streams = 0;
  const std::uint64_t high = std::uint64_t{1} << 32;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, high, high + 1}) {
    for (std::uint32_t env = 0; env < 5; ++env) {
      for (std::uint32_t episode = 0; episode < 5; ++episode, ++streams) {
        firsts.insert(Rng(seed, env, episode).NextWord());
      }
    }
  }
  CHECK_EQ(firsts.size(), streams);
}

TEST(Rng, NoTwoBlocksOfAStreamAreTheSame) {
  Rng rng(1, 2, 3);
  std::set<std::uint32_t> words;
  for (int i = 0; i < 1000; ++i) words.insert(rng.NextWord());
  // 1000 of 2^32: that two are equal happens once in 9000 streams, and not in this one
  CHECK_EQ(words.size(), std::size_t{1000});
}

TEST(Rng, UniformIsInItsRangeAndTakesTwoWords) {
  Rng rng(5, 0, 0);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double u = rng.Uniform();
    CHECK(u >= 0 && u < 1);
    sum += u;
  }
  CHECK_EQ(rng.draws(), 20000u);
  // five standard errors: 5 / sqrt(12 * 10000)
  CHECK(std::abs(sum / 10000 - 0.5) < 0.0145);
  for (int i = 0; i < 1000; ++i) {
    const double u = rng.Uniform(-3, -2);
    CHECK(u >= -3 && u < -2);
  }
}

TEST(Rng, UniformOfTheLowestAndHighestWords) {
  CHECK_EQ(UniformOf(0, 0), 0.0);
  CHECK_EQ(UniformOf(0xffffffff, 0xffffffff), 1.0 - 0x1p-53);
  // 27 bits of the first, 26 of the second
  CHECK_EQ(UniformOf(1u << 31, 0), 0.5);
  CHECK_EQ(UniformOf(1u << 5, 0), 0x1p-27);
  CHECK_EQ(UniformOf(0, 1u << 6), 0x1p-53);
  CHECK_EQ(UniformOf(31, 63), 0.0);
}

TEST(Rng, BelowTakesEachNumberAboutAsOften) {
  for (const std::uint32_t n : {1u, 2u, 3u, 7u, 10u}) {
    Rng rng(11, n, 0);
    std::vector<int> counts(n);
    const int draws = 20000;
    for (int i = 0; i < draws; ++i) {
      const std::uint32_t drawn = rng.Below(n);
      CHECK(drawn < n);
      ++counts[drawn];
    }
    for (const int count : counts) {
      const double p = 1.0 / n;
      CHECK(std::abs(count - draws * p) <= 5 * std::sqrt(draws * p * (1 - p)) + 1e-9);
    }
  }
}

TEST(Rng, BelowRefusesTheWordsThatWouldFavourSmallNumbers) {
  // almost half of all words must be drawn anew for 2^31 + 1 numbers
  Rng rng(3, 0, 0);
  const std::uint32_t n = (1u << 31) + 1;
  for (int i = 0; i < 1000; ++i) CHECK(rng.Below(n) < n);
  CHECK(rng.draws() > 1500 && rng.draws() < 2500);
}

TEST(TableRandom, IsAPureFunctionOfSeedAndDraws) {
  replay::TableRandom whole(9);
  for (std::uint64_t draws = 0; draws < 20; ++draws) {
    replay::TableRandom resumed(9, draws);
    CHECK_EQ(whole.draws(), draws);
    CHECK_EQ(resumed.Uniform(), whole.Uniform());
  }
  CHECK(replay::TableRandom(9).Uniform() != replay::TableRandom(10).Uniform());
  // 33 bits of draws and of seed count
  const std::uint64_t high = std::uint64_t{1} << 33;
  CHECK(replay::TableRandom(9, high).Uniform() != replay::TableRandom(9, 0).Uniform());
  CHECK(replay::TableRandom(9 + high).Uniform() != replay::TableRandom(9).Uniform());
}

TEST(TableRandom, TwoDrawsOfABlockDiffer) {
  replay::TableRandom random(1);
  std::set<double> drawn;
  for (int i = 0; i < 1000; ++i) drawn.insert(random.Uniform());
  CHECK_EQ(drawn.size(), std::size_t{1000});
}

TEST(TableRandom, BelowIsBelow) {
  replay::TableRandom random(2);
  std::set<std::int64_t> drawn;
  for (int i = 0; i < 300; ++i) drawn.insert(random.Below(5));
  CHECK(drawn == (std::set<std::int64_t>{0, 1, 2, 3, 4}));
  for (int i = 0; i < 100; ++i) CHECK_EQ(random.Below(1), 0);
  const std::int64_t most = (std::int64_t{1} << 32) - 1;
  for (int i = 0; i < 100; ++i) CHECK(random.Below(most) < most);
}

TEST(Math, PythonModHasTheSignOfTheDivisor) {
  const double values[] = {-7.5, -4, -3, -0.5, 0, 0.5, 3, 4, 7.5};
  for (const double x : values) {
    for (const double y : {-4.0, -1.5, 1.5, 4.0}) {
      const double found = PythonMod(x, y);
      CHECK_EQ(found, x - std::floor(x / y) * y);
      CHECK(found == 0 || (found < 0) == (y < 0));
    }
  }
  CHECK_EQ(PythonMod(-1.0f, 3.0f), 2.0f);
}

TEST(Math, ClipKeepsBoundsAndWhatIsBetween) {
  CHECK_EQ(Clip(-2.0, -1.0, 1.0), -1.0);
  CHECK_EQ(Clip(2.0, -1.0, 1.0), 1.0);
  CHECK_EQ(Clip(0.25, -1.0, 1.0), 0.25);
  CHECK_EQ(Clip(5, 7, 7), 7);
  // a number that is none stays so: no comparison with it is true
  CHECK(std::isnan(Clip(std::nan(""), -1.0, 1.0)));
}

TEST(Math, WrappedAnglesDifferByWholeTurns) {
  for (double x = -50; x < 50; x += 0.37) {
    const double wrapped = WrapAngle(x);
    CHECK(std::abs(wrapped) <= kPi + 1e-12);
    const double turns = (x - wrapped) / (2 * kPi);
    CHECK(std::abs(turns - std::round(turns)) < 1e-12);
  }
  CHECK_EQ(WrapAngle(0.0), 0.0);
  CHECK_EQ(WrapAngle(0.5), 0.5);
  CHECK(std::abs(WrapAngle(7.0f) - (7.0f - 2 * static_cast<float>(kPi))) < 1e-6f);
}

TEST(Math, InfinityIsInfinite) { CHECK_EQ(kInfinity, std::numeric_limits<double>::infinity()); }

TEST(Spec, BytesAreThoseOfAllElements) {
  SpaceSpec space;
  CHECK_EQ(space.size(), 1);  // a single number
  space.dtype = DType::kFloat64;
  CHECK_EQ(space.bytes(), 8);
  space.ndim = 3;
  space.shape[0] = 4, space.shape[1] = 84, space.shape[2] = 84;
  space.dtype = DType::kUint8;
  CHECK_EQ(space.bytes(), 4 * 84 * 84);
  // beyond 32 bits
  space.shape[0] = 1 << 20, space.shape[1] = 1 << 10, space.shape[2] = 8;
  space.dtype = DType::kFloat32;
  CHECK_EQ(space.bytes(), std::int64_t{1} << 35);
  space.shape[1] = 0;
  CHECK_EQ(space.bytes(), 0);
}

TEST(Spec, AnInfoIsANumberOrAnArray) {
  CHECK_EQ(InfoSpec{}.size(), 1);
  CHECK_EQ((InfoSpec{"x", DType::kInt32, 5}.size()), 5);
  // an array of one is no number, but takes as much room
  CHECK_EQ((InfoSpec{"x", DType::kInt32, 1}.size()), 1);
  CHECK_EQ((InfoSpec{"x", DType::kInt32, 0}.size()), 0);
}

TEST(Spec, EveryTypeHasItsSize) {
  const std::pair<DType, std::int32_t> sizes[] = {
      {DType::kUint8, 1}, {DType::kInt8, 1},    {DType::kInt32, 4},
      {DType::kInt64, 8}, {DType::kFloat32, 4}, {DType::kFloat64, 8}};
  for (const auto& [dtype, size] : sizes) CHECK_EQ(SizeOf(dtype), size);
}

TEST(Switch, IsOffOnOrNamed) {
  Switch value = false;
  CHECK(!std::get<bool>(value));
  value = std::string("continue");
  CHECK_EQ(std::get<std::string>(value), "continue");
}

TEST(State, ValuesComeBackInTheOrderTheyWerePut) {
  std::vector<std::uint8_t> bytes;
  StateWriter writer(bytes);
  writer.Put(std::int32_t{-5});
  writer.Put(2.5);
  writer.Put(std::uint8_t{7});
  writer.PutBytes(std::vector<std::uint8_t>{1, 2, 3});
  CHECK_EQ(bytes.size(), std::size_t{16});
  StateReader reader(bytes);
  CHECK_EQ(reader.Get<std::int32_t>(), -5);
  CHECK_EQ(reader.Get<double>(), 2.5);
  CHECK_EQ(reader.rest().size(), std::size_t{4});
  CHECK_EQ(reader.Get<std::uint8_t>(), 7);
  CHECK_EQ(int{reader.GetBytes(3)[2]}, 3);
  CHECK(reader.rest().empty());
  CHECK(reader.GetBytes(0).empty());
}

TEST(State, ReadingBeyondTheEndIsAnErrorThatTakesNothing) {
  const std::vector<std::uint8_t> bytes{1, 2, 3};
  StateReader reader(bytes);
  const auto said = units::MessageOf<SpecError>([&] { reader.Get<std::int32_t>(); });
  CHECK_EQ(said, "is shorter than its parts");
  units::MessageOf<SpecError>([&] { reader.GetBytes(std::uint64_t{1} << 63); });
  CHECK_EQ(reader.rest().size(), std::size_t{3});
}

TEST(State, ASealedStateIsOpenedByItsKindAlone) {
  const StateKind kind{"CartPole", 42};
  const std::vector<std::uint8_t> state{9, 8, 7, 6, 5};
  const auto sealed = SealState(kind, state);
  const auto opened = OpenState(kind, sealed);
  CHECK(std::equal(opened.begin(), opened.end(), state.begin(), state.end()));
  CHECK(opened.data() > sealed.data() && opened.data() < sealed.data() + sealed.size());
  units::MessageOf<SpecError>([&] { OpenState({"Pendulum", 42}, sealed); });
  units::MessageOf<SpecError>([&] { OpenState({"CartPole", 43}, sealed); });
  CHECK(OpenState(kind, SealState(kind, {})).empty());
}

TEST(State, EveryDamagedByteAndEveryShorterStateIsFound) {
  const StateKind kind{"CartPole", 42};
  const std::vector<std::uint8_t> state{9, 8, 7, 6, 5};
  const auto sealed = SealState(kind, state);
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    auto damaged = sealed;
    damaged[i] ^= 0x10;
    units::MessageOf<SpecError>([&] { OpenState(kind, damaged); });
    const std::vector<std::uint8_t> shorter(sealed.begin(), sealed.begin() + i);
    units::MessageOf<SpecError>([&] { OpenState(kind, shorter); });
  }
  auto longer = sealed;
  longer.push_back(0);
  units::MessageOf<SpecError>([&] { OpenState(kind, longer); });
}

}  // namespace
}  // namespace rollouts
