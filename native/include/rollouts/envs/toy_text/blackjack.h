// SPDX-License-Identifier: Apache-2.0
// Blackjack with an infinite deck (Sutton and Barto 2018, example 5.1), as Gymnasium's
// Blackjack-v1 (gymnasium/envs/toy_text/blackjack.py).
#pragma once

#include "rollouts/core/env.h"

namespace rollouts {

struct Blackjack {
  struct Config {
    bool natural = false;  // a winning natural pays 1.5; has no effect with sab
    bool sab = true;       // Sutton and Barto: a natural beats all but a natural
  };
  // Hands as their hard totals (aces count 1), whether they hold an ace, and their sizes.
  struct State {
    std::int32_t player_total, player_has_ace, player_cards;
    std::int32_t dealer_total, dealer_has_ace, dealer_cards;
    std::int32_t dealer_shows;  // the dealer's open card, 1 (ace) to 10
  };
  using Action = std::int32_t;  // 0 stick, 1 hit
  // The player's sum, the dealer's open card, and whether the player's ace counts 11. Gymnasium's
  // space is Tuple(Discrete(32), Discrete(11), Discrete(2)); a row here is MultiDiscrete.
  using Obs = std::int64_t;

  static constexpr EnvSpec kSpec = {
      .observation = {.dtype = DType::kInt64,
                      .ndim = 1,
                      .shape = {3},
                      .multi_discrete = true,
                      .elementwise = true,
                      .high = {31, 10, 1}},
      .action = {.dtype = DType::kInt64, .n = 2},
      .step_cost_ns = 35};

  template <typename Visitor>
  static void VisitConfig(Config& config, Visitor& visit) {
    visit("natural", config.natural);
    visit("sab", config.sab);
  }

  ROLLOUTS_HD static void Reset(const Config&, State& state, Rng& rng) {
    state = State{};
    state.dealer_shows = Deal(state.dealer_total, state.dealer_has_ace, state.dealer_cards, rng);
    Deal(state.dealer_total, state.dealer_has_ace, state.dealer_cards, rng);
    Deal(state.player_total, state.player_has_ace, state.player_cards, rng);
    Deal(state.player_total, state.player_has_ace, state.player_cards, rng);
  }

  ROLLOUTS_HD static StepResult Step(const Config& config, State& state, const Action* action,
                                     Rng& rng) {
    if (*action == 1) {
      Deal(state.player_total, state.player_has_ace, state.player_cards, rng);
      const bool bust = state.player_total > 21;
      return StepResult::Of(bust ? -1.0 : 0.0, bust);
    }

    // the dealer draws until the sum is 17 or more
    while (Sum(state.dealer_total, state.dealer_has_ace) < 17) {
      Deal(state.dealer_total, state.dealer_has_ace, state.dealer_cards, rng);
    }
    const std::int32_t player = Score(state.player_total, state.player_has_ace);
    const std::int32_t dealer = Score(state.dealer_total, state.dealer_has_ace);
    const bool player_natural = player == 21 && state.player_cards == 2;
    const bool dealer_natural = dealer == 21 && state.dealer_cards == 2;
    const double reward = (player > dealer) - (player < dealer);
    const bool wins_outright = config.sab && player_natural && !dealer_natural;
    const bool pays_more = !config.sab && config.natural && player_natural && reward == 1.0;
    return StepResult::Of(wins_outright ? 1.0 : (pays_more ? 1.5 : reward), true);
  }

  ROLLOUTS_HD static void Observe(const Config&, const State& state, Obs* obs) {
    obs[0] = Sum(state.player_total, state.player_has_ace);
    obs[1] = state.dealer_shows;
    obs[2] = state.player_has_ace && state.player_total <= 11;
  }

  ROLLOUTS_HD static const char* CheckState(const Config&, const State& state) {
    return IsHand(state.player_total, state.player_has_ace, state.player_cards) &&
                   IsHand(state.dealer_total, state.dealer_has_ace, state.dealer_cards) &&
                   IsWithin(state.dealer_shows, 1, 10)
               ? nullptr
               : kNoSuchState;
  }

 private:
  // Tells if a hand is possible: two cards at least, and a card that exceeds 21 is the last.
  ROLLOUTS_HD static bool IsHand(std::int32_t total, std::int32_t has_ace, std::int32_t cards) {
    return IsWithin(total, 2, 31) && IsWithin(has_ace, 0, 1) && IsWithin(cards, 2, 22);
  }

  // Adds one card to a hand and returns it: four of the thirteen ranks count 10.
  ROLLOUTS_HD static std::int32_t Deal(std::int32_t& total, std::int32_t& has_ace,
                                       std::int32_t& cards, Rng& rng) {
    const std::int32_t rank = static_cast<std::int32_t>(rng.Below(13)) + 1;
    const std::int32_t card = rank < 10 ? rank : 10;
    total += card;
    has_ace |= card == 1;
    ++cards;
    return card;
  }

  // The total, with an ace as 11 where that does not bust.
  ROLLOUTS_HD static std::int32_t Sum(std::int32_t total, std::int32_t has_ace) {
    return has_ace && total <= 11 ? total + 10 : total;
  }
  ROLLOUTS_HD static std::int32_t Score(std::int32_t total, std::int32_t has_ace) {
    return total > 21 ? 0 : Sum(total, has_ace);
  }
};

}  // namespace rollouts
