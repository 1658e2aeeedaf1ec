// SPDX-License-Identifier: Apache-2.0
// pool/configs.h: one Config for all, or one for each in lanes.
#include <cstdint>
#include <vector>

#include "rollouts/pool/configs.h"
#include "units.h"

namespace rollouts {
namespace {

// The part of an environment that Configs look at: fields of every kind that a lane holds.
struct LanedEnv {
  struct Config {
    double length = 0.1;
    float scale = 2.5f;
    std::int32_t size = 3;
    bool is_odd = false;
  };
  static constexpr bool kVectorized = true;

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("length", config.length);
    visit("scale", config.scale);
    visit("size", config.size);
    visit("is_odd", config.is_odd);
  }
};

struct PlainEnv {
  using Config = LanedEnv::Config;
};

std::vector<LanedEnv::Config> Numbered(std::int32_t count) {
  std::vector<LanedEnv::Config> configs;
  for (std::int32_t i = 0; i < count; ++i) {
    // values that no smaller type holds
    configs.push_back({0.1 + i, 0.3f * static_cast<float>(i), -2'000'000'011 + i, i % 2 == 1});
  }
  return configs;
}

void CheckIs(const LanedEnv::Config& found, std::int32_t env) {
  const LanedEnv::Config expected = Numbered(env + 1).back();
  CHECK_EQ(found.length, expected.length);
  CHECK_EQ(found.scale, expected.scale);
  CHECK_EQ(found.size, expected.size);
  CHECK_EQ(found.is_odd, expected.is_odd);
}

TEST(Configs, OneConfigIsEverybodys) {
  const Configs<LanedEnv> configs(Numbered(1));
  CHECK(configs.same());
  for (const std::int32_t env : {0, 1, 99}) CheckIs(configs[env], 0);
  const SameConfig<LanedEnv> block{configs[0]};
  CheckIs(block[63], 0);
}

TEST(Configs, EachHasItsOwn) {
  const Configs<LanedEnv> configs(Numbered(100));
  CHECK(!configs.same());
  for (const std::int32_t env : {0, 1, 99}) CheckIs(configs[env], env);
  // whether an environment has lanes or not
  const Configs<PlainEnv> plain(Numbered(3));
  CheckIs(plain[2], 2);
}

TEST(Configs, NeighboursAreReadWhereTheyLie) {
  const Configs<LanedEnv> configs(Numbered(100));
  Configs<LanedEnv>::Gathered gathered;
  gathered.lanes[0] = -1;
  const std::vector<std::int32_t> envs{30, 31, 32};
  const ConfigLanes<LanedEnv> lanes = configs.Lanes(envs, gathered);
  for (std::int32_t i = 0; i < 3; ++i) CheckIs(lanes[i], 30 + i);
  CHECK_EQ(gathered.lanes[0], -1.0);
  CHECK(lanes.first != gathered.lanes);
}

TEST(Configs, OthersAreGathered) {
  const Configs<LanedEnv> configs(Numbered(100));
  Configs<LanedEnv>::Gathered gathered;
  for (const std::vector<std::int32_t>& envs :
       std::vector<std::vector<std::int32_t>>{{5, 4}, {7, 7}, {0, 99, 50}, {1, 2, 3, 5}}) {
    const ConfigLanes<LanedEnv> lanes = configs.Lanes(envs, gathered);
    CHECK(lanes.first == gathered.lanes);
    for (std::size_t i = 0; i < envs.size(); ++i) CheckIs(lanes[static_cast<std::int32_t>(i)], envs[i]);
  }
}

TEST(Configs, AWholeBlockIsGathered) {
  const Configs<LanedEnv> configs(Numbered(2 * kBlockEnvs));
  Configs<LanedEnv>::Gathered gathered;
  std::vector<std::int32_t> envs;
  for (std::int32_t i = 0; i < kBlockEnvs; ++i) envs.push_back(2 * i);
  const ConfigLanes<LanedEnv> lanes = configs.Lanes(envs, gathered);
  for (std::int32_t i = 0; i < kBlockEnvs; ++i) CheckIs(lanes[i], 2 * i);
}

}  // namespace
}  // namespace rollouts
