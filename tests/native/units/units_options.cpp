// SPDX-License-Identifier: Apache-2.0
// Options by name; words drawn ahead; actions that are checked while they are copied.
#include <algorithm>
#include <limits>
#include <vector>

#include "rollouts/pool/checked_copy.h"
#include "rollouts/pool/draws.h"
#include "rollouts/support/options.h"
#include "units.h"

namespace rollouts {
namespace {

using units::Contains;
using units::MessageOf;

TEST(LaneRng, GivesWhatRngGivesWhileItIsValid) {
  for (std::uint32_t draws = 0; draws < 8; ++draws) {
    Rng rng(5, 6, 7, draws);
    std::uint32_t words[4] = {};
    const std::int32_t left = 4 - static_cast<std::int32_t>(draws % 4);
    Rng ahead = rng;
    for (std::int32_t i = 0; i < left; ++i) words[i] = ahead.NextWord();
    LaneRng lane{words[0], words[1], words[2], words[3], left};
    for (std::int32_t i = 0; i < left; ++i) {
      CHECK(lane.valid());
      CHECK_EQ(lane.NextWord(), rng.NextWord());
    }
    CHECK(lane.valid());
    CHECK_EQ(lane.taken, left);
    lane.NextWord();
    CHECK(!lane.valid());
  }
}

TEST(LaneRng, IsInvalidWhereRngWouldDrawAnew) {
  // the word 0 would favour the first of three numbers
  LaneRng rejected{0, 0, 0, 0, 4};
  rejected.Below(3);
  CHECK(!rejected.valid());
  LaneRng taken{0x80000000u, 0, 0, 0, 4};
  CHECK_EQ(taken.Below(3), 1u);
  CHECK(taken.valid());
  LaneRng uniform{1u << 31, 0, 0, 0, 1};
  CHECK_EQ(uniform.Uniform(), 0.5);
  CHECK(!uniform.valid());  // it took two words and had one
}

TEST(Draws, CountersAreThoseOfRng) {
  Draws draws{};
  draws.Load(3, (std::uint64_t{9} << 32) + 8, 5, 2, 6);
  CHECK_EQ(draws.index[3], Rng::BlockIndex(6));
  CHECK_EQ(draws.stream_id[3], 5u);
  CHECK_EQ(draws.episode[3], 2u);
  CHECK((draws.key0[3] == 8 && draws.key1[3] == 9));
  CHECK_EQ(draws.left[3], 2);
  draws.Load(3, 0, 0, 0, 8);
  CHECK_EQ(draws.left[3], 4);
}

template <typename Int>
void CheckDiscrete(std::vector<Int> actions, bool expected) {
  std::vector<std::int32_t> copied(actions.size());
  const auto count = static_cast<std::int64_t>(actions.size());
  CHECK_EQ(CopyDiscrete(actions.data(), count, 5, copied.data()), expected);
  if (expected) CHECK(std::equal(copied.begin(), copied.end(), actions.begin()));
}

TEST(CheckedCopy, ActionsOutOfRangeAreFoundWhereverTheyAre) {
  for (const std::size_t size : {0, 1, 7, 16, 33, 100}) {
    std::vector<std::int32_t> small(size, 4);
    std::vector<std::int64_t> large(size, 0);
    CheckDiscrete(small, true);
    CheckDiscrete(large, true);
    for (std::size_t at = 0; at < size; ++at) {
      for (const std::int32_t wrong : {5, -1, std::numeric_limits<std::int32_t>::min()}) {
        auto actions = small;
        actions[at] = wrong;
        CheckDiscrete(actions, false);
      }
      // the low words of these are fine
      for (const std::int64_t wrong : {std::int64_t{1} << 32, (std::int64_t{-1} << 32) + 3}) {
        auto actions = large;
        actions[at] = wrong;
        CheckDiscrete(actions, false);
      }
    }
  }
}

TEST(CheckedCopy, NumbersThatAreNotFiniteAreFoundWhereverTheyAre) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float most = std::numeric_limits<float>::max();
  for (const std::size_t size : {1, 8, 19}) {
    const std::vector<float> numbers(size, -most);
    std::vector<float> copied(size);
    CHECK(CopyFinite(numbers.data(), static_cast<std::int64_t>(size), copied.data()));
    CHECK(copied == numbers);
    for (std::size_t at = 0; at < size; ++at) {
      for (const float wrong : {infinity, -infinity, std::nanf("")}) {
        auto actions = numbers;
        actions[at] = wrong;
        CHECK(!CopyFinite(actions.data(), static_cast<std::int64_t>(size), copied.data()));
      }
    }
  }
}

struct Tuned {
  struct Config {
    bool quick = false;
    std::int32_t count = 3;
    double mass = 1.5;
    std::string name = "a";
    Switch lives = false;
  };
  template <typename V>
  static void VisitConfig(Config& config, V& visit) {
    visit("quick", config.quick);
    visit("count", config.count);
    visit("mass", config.mass);
    visit("name", config.name);
    visit("lives", config.lives);
  }
  template <typename C>
  static void CheckConfig(const Config& config, C& check) {
    check.Positive("mass", config.mass);
    check.OneOf("name", config.name, {"a", "b"});
  }
};

using Values = std::vector<OptionValue>;

TEST(Options, GivenOnesStandOverTheDefaults) {
  const OptionColumns given{{"quick", Values{true}}, {"mass", Values{std::int64_t{2}}},
                            {"lives", Values{std::string("continue")}}};
  const Tuned::Config config = ReadConfig<Tuned>(given, 0);
  CHECK(config.quick && config.count == 3 && config.mass == 2.0 && config.name == "a");
  CHECK(config.lives == Switch(std::string("continue")));
  const Options listed = ListOptions<Tuned>(config);
  CHECK_EQ(listed.size(), std::size_t{5});
  CHECK(listed.at("count") == OptionValue(std::int64_t{3}));
  CHECK(listed.at("lives") == OptionValue(std::string("continue")));
}

TEST(Options, RowsHaveTheirOwnValues) {
  const OptionColumns given{{"count", Values{std::int64_t{1}, std::int64_t{2}, std::int64_t{5}}},
                            {"mass", Values{9.0}}};
  CHECK(DifferByRow(given));
  const auto configs = ReadConfigs<Tuned>(given, 1, 2);
  CHECK_EQ(configs.size(), std::size_t{2});
  CHECK((configs[0].count == 2 && configs[1].count == 5 && configs[1].mass == 9.0));
  CHECK_EQ(ReadConfigs<Tuned>({{"mass", Values{9.0}}}, 0, 100).size(), std::size_t{1});
}

TEST(Options, WhatDoesNotFitSaysWhatWould) {
  const auto said = [](const char* name, OptionValue value) {
    return MessageOf<SpecError>([&] { ReadConfig<Tuned>({{name, Values{value}}}, 0); });
  };
  CHECK_EQ(said("quick", std::int64_t{1}), "option 'quick' must be a bool, got an int");
  CHECK_EQ(said("count", true), "option 'count' must be an int that fits 32 bits, got a bool");
  CHECK_EQ(said("count", 2.0), "option 'count' must be an int that fits 32 bits, got a float");
  CHECK(Contains(said("count", std::int64_t{1} << 31), "fits 32 bits, got an int"));
  CHECK_EQ(said("mass", std::string("x")), "option 'mass' must be a float, got a str");
  CHECK_EQ(said("name", 1.0), "option 'name' must be a str, got a float");
  CHECK_EQ(said("lives", 1.0), "option 'lives' must be a bool or a str, got a float");
  CHECK_EQ(said("mass", -1.0), "option 'mass' must be a finite number above 0, got -1");
  CHECK_EQ(said("name", std::string("c")), "option 'name' must be 'a' or 'b', got 'c'");
  CHECK_EQ(said("size", 1.0),
           "unknown option 'size'; this environment takes: quick, count, mass, name, lives");
}

TEST(Options, TheRowIsNamedWhereRowsDiffer) {
  const OptionColumns given{{"mass", Values{1.0, -2.0}}};
  CHECK_EQ(ReadConfig<Tuned>(given, 0).mass, 1.0);
  CHECK_EQ(MessageOf<SpecError>([&] { ReadConfig<Tuned>(given, 1); }),
           "options of row 1: option 'mass' must be a finite number above 0, got -2");
}

TEST(Options, BoundsOfNumbersAreKept) {
  ConfigCheck check;
  check.Probability("p", 0), check.Probability("p", 1), check.Finite("f", -1e300);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double wrong : {-0.1, 1.1, infinity, std::nan("")}) {
    MessageOf<SpecError>([&] { check.Probability("p", wrong); });
  }
  for (const double wrong : {infinity, -infinity, std::nan("")}) {
    MessageOf<SpecError>([&] { check.Finite("f", wrong); });
    MessageOf<SpecError>([&] { check.Positive("f", wrong); });
  }
  MessageOf<SpecError>([&] { check.Positive("f", 0); });
}

}  // namespace
}  // namespace rollouts
