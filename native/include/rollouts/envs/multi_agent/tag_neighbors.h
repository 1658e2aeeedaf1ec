// SPDX-License-Identifier: Apache-2.0
// Neighbours in TagContinuous: the nearest agents, which an agent sees, and which tagger tags which
// runner. Where there are many agents, they are sorted into cells for this.
#pragma once

#include "rollouts/core/multi_agent.h"
#include "rollouts/core/words.h"
#include "rollouts/envs/multi_agent/nearest.h"
#include "rollouts/envs/multi_agent/point_cells.h"
#include "rollouts/envs/multi_agent/tag_tables.h"

namespace rollouts {

// These functions are only for TagContinuous.
template <typename Tag>
struct TagNeighbors {
  using Ref = WorldRef<Tag>;
  using Config = typename Tag::Config;

  // Tells if agents are sorted into cells; else each is compared with all others.
  ROLLOUTS_HD static bool AreInCells(const Config& config) {
    const std::int32_t n = config.num_taggers + config.num_runners;
    return !config.use_full_observation && n >= kFewestInCells &&
           config.num_other_agents_observed <= n / 8;
  }

  // The work of all agents together after they moved, on which LookAround and CountTags depend.
  template <typename Crew>
  ROLLOUTS_HD static void Meet(const Crew& crew) {
    const Config& config = crew.config();
    const std::int32_t n = config.num_taggers + config.num_runners;
    if (AreInCells(config)) {
      SortIntoCells(crew);
      crew.ForEach(n, [](const Ref& w, std::int32_t row) { SetCatcher(w, row); });
    }
    crew.ForEach(NumBlocks(n), [](const Ref& w, std::int32_t block) { MarkBlock(w, block); });
  }

  template <typename Crew>
  ROLLOUTS_HD static void SortIntoCells(const Crew& crew) {
    const Config& config = crew.config();
    if (!AreInCells(config)) return;
    if constexpr (!kInKernel) {
      crew.ForEach(1, [](const Ref& w, std::int32_t) { SortingOf(w).SortAlone(); });
    } else {
      const std::int32_t n = config.num_taggers + config.num_runners;
      const std::int32_t lines = PointCells::PerSide(n), cells = lines * lines;
      crew.ForEach(cells, [](const Ref& w, std::int32_t i) { SortingOf(w).Clear(i); });
      crew.ForEach(n, [](const Ref& w, std::int32_t i) { SortingOf(w).Count(i); });
      crew.ForEach(lines, [](const Ref& w, std::int32_t i) { SortingOf(w).SumLine(i); });
      crew.ForEach(cells, [](const Ref& w, std::int32_t i) { SortingOf(w).Begin(i); });
      crew.ForEach(n, [](const Ref& w, std::int32_t i) { SortingOf(w).List(i); });
      crew.ForEach(n, [](const Ref& w, std::int32_t i) { SortingOf(w).Rank(i); });
      crew.ForEach(n, [](const Ref& w, std::int32_t i) { SortingOf(w).Put(i); });
    }
  }

  // Finds the tagger that tags a row: the nearest one, if it is near enough.
  ROLLOUTS_HD static void SetCatcher(const Ref& w, std::int32_t row) {
    std::int32_t catcher = -1;
    if (row >= w.config.num_taggers && w.status.active[row]) {
      const bool by_cells = AreInCells(w.config) && w.config.num_taggers > kFewTaggers;
      catcher = by_cells ? CatcherInCells(w, row) : CatcherOf(w, row);
    }
    w.agents.catcher[row] = catcher;
  }

  // Finds the nearest others of an agent. With cells, `i` is the index of a sorted point and not a
  // row, so that threads of a warp read the same cells.
  ROLLOUTS_HD static void LookAround(const Ref& w, std::int32_t i) {
    const auto& a = w.agents;
    const std::int32_t ranks = w.config.num_other_agents_observed;
    if (AreInCells(w.config)) {
      const PointCells cells = CellsOf(w);
      if (i >= cells.count()) return;
      const auto row = static_cast<std::int32_t>(TablesOf(w).row[cells.id[i]]);
      a.num_near[row] = NearestPoints<PointCells>(cells).Find(i, ranks, a.reach[row],
                                                              a.near + std::int64_t{row} * ranks);
    } else if (w.status.active[i]) {
      const NearestPoints<UnsortedPoints> points({a.id_x, a.id_y, w.num_agents});
      a.num_near[i] = points.Find(static_cast<std::int32_t>(w.tables[i]), ranks, a.reach[i],
                                  a.near + std::int64_t{i} * ranks);
    }
  }

  // Calls `tagged()` for each runner that a tagger tags.
  template <typename Tagged>
  ROLLOUTS_HD static void ForEachTagged(const Ref& w, std::int32_t tagger, Tagged&& tagged) {
    const std::int32_t blocks = NumBlocks(w.num_agents);
    for (std::int32_t block = 0; block < blocks; ++block) {
      for (auto left = static_cast<std::uint32_t>(w.agents.counts[blocks + block]); left != 0;
           left &= left - 1) {
        if (w.agents.catcher[block * kBlock + LowestBit(left)] == tagger) tagged();
      }
    }
  }

  // Counts the runners in the game, or those of them that are tagged now.
  ROLLOUTS_HD static std::int32_t CountRunners(const Ref& w, bool tagged) {
    const std::int32_t blocks = NumBlocks(w.num_agents);
    std::int32_t count = 0;
    for (std::int32_t block = 0; block < blocks; ++block) {
      count += CountBits(static_cast<std::uint32_t>(w.agents.counts[tagged * blocks + block]));
    }
    return count;
  }

 private:
  static constexpr std::int32_t kFewestInCells = 128;
  static constexpr std::int32_t kFewTaggers = 16;  // up to this, comparing all is faster than cells
  static constexpr std::int32_t kBlock = 32;       // rows whose bits are in one number

  ROLLOUTS_HD static std::int32_t NumBlocks(std::int32_t n) { return (n + kBlock - 1) / kBlock; }
  ROLLOUTS_HD static TagTables<Config> TablesOf(const Ref& w) { return {w.config, w.tables}; }

  ROLLOUTS_HD static PointCells CellsOf(const Ref& w) {
    return {static_cast<float>(w.config.grid_length), w.num_agents, w.agents.id_x, w.agents.id_y,
            w.agents.cell_id, w.agents.counts + 2 * NumBlocks(w.num_agents)};
  }
  ROLLOUTS_HD static CellSorting SortingOf(const Ref& w) {
    return {CellsOf(w), w.num_agents, w.agents.x, w.agents.y, w.status.active, w.tables,
            w.agents.catcher};
  }

  // Marks runners of a block that are in the game, and those of them that are tagged.
  ROLLOUTS_HD static void MarkBlock(const Ref& w, std::int32_t block) {
    std::uint32_t runners = 0, tagged = 0;
    const std::int32_t first = block * kBlock;
    const std::int32_t rows = w.num_agents - first < kBlock ? w.num_agents - first : kBlock;
    for (std::int32_t i = 0; i < rows; ++i) {
      const bool runs = first + i >= w.config.num_taggers && w.status.active[first + i] != 0;
      runners |= static_cast<std::uint32_t>(runs) << i;
      tagged |= static_cast<std::uint32_t>(w.agents.catcher[first + i] >= 0) << i;
    }
    w.agents.counts[block] = static_cast<std::int32_t>(runners);
    w.agents.counts[NumBlocks(w.num_agents) + block] = static_cast<std::int32_t>(tagged);
  }

  // The distance within which a runner is tagged.
  ROLLOUTS_HD static float Margin(const Config& config) {
    return static_cast<float>(config.tagging_distance * static_cast<float>(config.grid_length));
  }
  ROLLOUTS_HD static float Distance(float dx, float dy) { return Sqrt(dx * dx + dy * dy); }

  // The first of the nearest taggers. Rows of taggers are in the order of their ids.
  ROLLOUTS_HD static std::int32_t CatcherOf(const Ref& w, std::int32_t row) {
    std::int32_t nearest = -1;
    float least = Margin(w.config);
    for (std::int32_t t = 0; t < w.config.num_taggers; ++t) {
      const float distance =
          Distance(w.agents.x[t] - w.agents.x[row], w.agents.y[t] - w.agents.y[row]);
      if (distance < least) {
        least = distance;
        nearest = t;
      }
    }
    return nearest;
  }
  ROLLOUTS_HD static std::int32_t CatcherInCells(const Ref& w, std::int32_t row) {
    const PointCells cells = CellsOf(w);
    const float x = w.agents.x[row], y = w.agents.y[row];
    std::int32_t nearest = -1;
    float least = Margin(w.config);
    // slightly more, because distances are rounded
    const float reach = least * 1.0001f + 1e-15f;
    cells.ForEachRange(x, y, reach, [&](std::int32_t first, std::int32_t last) {
      for (; first < last; ++first) {
        const float distance = Distance(cells.x[first] - x, cells.y[first] - y);
        const bool is_tie = distance == least && nearest >= 0;
        if (!(distance < least) && !is_tie) continue;
        const auto other = static_cast<std::int32_t>(TablesOf(w).row[cells.id[first]]);
        if (other >= w.config.num_taggers || (is_tie && other > nearest)) continue;
        least = distance;
        nearest = other;
      }
      return true;
    });
    return nearest;
  }
};

}  // namespace rollouts
