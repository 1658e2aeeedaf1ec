# SPDX-License-Identifier: Apache-2.0
"""The games of tag, slow and plain: one agent after the other, in the words of their rules.

The rules are those of WarpDrive's Python step (rl-warp-drive 2.7.1); numbers have 32 bits where its
have. Agents are in the order of their ids.
"""

from __future__ import annotations

from typing import Any

import numpy as np

F = np.float32
TURN = F(2 * np.pi)


class TagContinuousReference:
    """One world of TagContinuous-v0 with options by its names."""

    def __init__(self, options: dict[str, Any], episode_length: int) -> None:
        """Draws the starts as WarpDrive does with `start_seed` for its seed."""
        self.o = options
        self.episode_length = episode_length
        self.num_agents = n = options["num_taggers"] + options["num_runners"]
        random = np.random.RandomState(options["start_seed"])
        taggers = random.choice(np.arange(n), options["num_taggers"], replace=False)
        self.is_tagger = np.isin(np.arange(n), taggers)
        side = F(options["grid_length"])
        self.start_x = (side * random.rand(n)).astype(F)
        self.start_y = (side * random.rand(n)).astype(F)
        quarters = np.array([0, np.pi / 2, np.pi, 3 * np.pi / 2])
        self.start_heading = random.choice(quarters, n, replace=True).astype(F)
        # ids in the order of our rows
        self.id_of_row = np.concatenate(
            [np.flatnonzero(self.is_tagger), np.flatnonzero(~self.is_tagger)]
        )

        def levels(low: float, high: float, count: int) -> Any:
            # all of it in 32-bit numbers, as linspace computes with NumPy 2
            step = (F(high) - F(low)) / F(max(count - 1, 1))
            steps = np.arange(count, dtype=F) * step + F(low)
            if count > 1:
                steps[-1] = F(high)
            return np.concatenate([[F(0)], steps])

        self.accelerations = levels(
            options["min_acceleration"],
            options["max_acceleration"],
            options["num_acceleration_levels"],
        )
        self.turns = levels(options["min_turn"], options["max_turn"], options["num_turn_levels"])

    def reset(self) -> Any:
        """Begins an episode; returns the observations, (num_agents, size) float32."""
        n = self.num_agents
        self.x, self.y = self.start_x.copy(), self.start_y.copy()
        self.heading = self.start_heading.copy()
        self.speed, self.acceleration = np.zeros(n, F), np.zeros(n, F)
        self.alive = np.ones(n, bool)
        self.t = 0
        return self.observe()

    def step(self, actions: Any) -> tuple[Any, Any, bool]:
        """Takes (num_agents, 2) actions; returns observations, rewards (num_agents,), done."""
        o = self.o
        self.t += 1
        side = F(o["grid_length"])
        reward = np.zeros(self.num_agents, F)
        for i in range(self.num_agents):
            tags = self.is_tagger[i]
            skill = o["skill_level_tagger"] if tags else o["skill_level_runner"]
            most = F(F(o["max_speed"]) * F(skill))
            alive = F(self.alive[i])
            acceleration = self.acceleration[i] + self.accelerations[actions[i, 0]]
            heading = np.mod(self.heading[i] + self.turns[actions[i, 1]], TURN) * alive
            speed = np.clip(self.speed[i] + acceleration, F(0), most) * alive
            self.acceleration[i] = F(0) if speed <= 0 or speed >= most else acceleration
            self.heading[i], self.speed[i] = heading, speed
            # sine and cosine are rounded once, from those of 64-bit numbers
            x = self.x[i] + speed * F(np.cos(np.float64(heading)))
            y = self.y[i] + speed * F(np.sin(np.float64(heading)))
            self.x[i], self.y[i] = np.clip(x, F(0), side), np.clip(y, F(0), side)
            if not self.alive[i]:
                continue
            hit = x < 0 or x > side or y < 0 or y > side
            each = o["step_penalty_for_tagger"] if tags else o["step_reward_for_runner"]
            reward[i] = (F(o["edge_hit_penalty"]) if hit else F(0)) + F(each)
        obs = self.observe()
        self.tag(reward)
        runners = self.alive & ~self.is_tagger
        if self.t == self.episode_length:
            reward[runners] += F(o["end_of_game_reward_for_runner"])
        return obs, reward, self.t == self.episode_length or not runners.any()

    def tag(self, reward: Any) -> None:
        """Tags each runner that is within the margin of its nearest tagger."""
        o = self.o
        margin = F(o["tagging_distance"] * F(o["grid_length"]))
        for runner in np.flatnonzero(self.alive & ~self.is_tagger):
            taggers = np.flatnonzero(self.is_tagger)
            distances = self.distance(runner, taggers)
            nearest = int(np.argmin(distances))
            if not distances[nearest] < margin:
                continue
            reward[runner] += F(o["tag_penalty_for_runner"])
            reward[taggers[nearest]] += F(o["tag_reward_for_tagger"])
            if o["runner_exits_game_after_tagged"]:
                self.alive[runner] = False

    def distance(self, i: int, others: Any) -> Any:
        """Distances of agent i from others, float32."""
        dx, dy = self.x[others] - self.x[i], self.y[others] - self.y[i]
        return np.sqrt(dx * dx + dy * dy)

    def observe(self) -> Any:
        """All agents' observations as things are now."""
        return np.stack([self.observe_one(i) for i in range(self.num_agents)])

    def observe_one(self, i: int) -> Any:
        o, n = self.o, self.num_agents
        others = np.array([j for j in range(n) if j != i])
        full = o["use_full_observation"]
        if full:
            ranks = n - 1
        else:
            ranks = o["num_other_agents_observed"]
            present = others[self.alive[others]]
            order = np.argsort(self.distance(i, present), kind="stable")
            others = present[order][:ranks]
        features = np.zeros((7, ranks), F)
        diagonal = np.float64(F(o["grid_length"])) * np.sqrt(2.0)
        fastest = F(o["max_speed"] + 1e-10)
        seen = len(others)
        if self.alive[i]:
            relative = [
                self.x[others] / diagonal - self.x[i] / diagonal,
                self.y[others] / diagonal - self.y[i] / diagonal,
                self.speed[others] / fastest - self.speed[i] / fastest,
                self.acceleration[others] / fastest - self.acceleration[i] / fastest,
                self.heading[others] / TURN - self.heading[i] / TURN,
            ]
            features[:5, :seen] = np.array([column.astype(F) for column in relative])
        if self.alive[i] or full:
            features[5, :seen] = self.is_tagger[others]
            features[6, :seen] = self.alive[others]
        time = F(self.t / self.episode_length) if self.alive[i] else F(0)
        return np.append(features.ravel(), time)


class TagGridWorldReference:
    """One world of TagGridWorld-v0: taggers by their ids, and the runner as the last."""

    def __init__(self, options: dict[str, Any], episode_length: int) -> None:
        self.o = options
        self.episode_length = episode_length
        self.num_agents = options["num_taggers"] + 1
        self.id_of_row = np.arange(self.num_agents)

    def reset(self) -> Any:
        """Begins an episode; returns the observations, (num_agents, size) float32."""
        middle = self.o["grid_length"] // 2
        self.cells = np.full((self.num_agents, 2), middle)
        self.cells[-1] = 0
        self.t = 0
        return self.observe()

    def step(self, actions: Any) -> tuple[Any, Any, bool]:
        """Takes (num_agents,) actions; returns observations, rewards (num_agents,), done."""
        o = self.o
        self.t += 1
        moves = np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)])
        wished = self.cells + moves[actions]
        self.cells = np.clip(wished, 0, o["grid_length"])
        hit = (wished != self.cells).any(axis=1)
        tagged = bool((self.cells[:-1] == self.cells[-1]).all(axis=1).any())
        cost = F(o["step_cost_for_tagger"])
        reward = np.where(hit, -F(o["wall_hit_penalty"]), F(0))
        reward[:-1] += F(o["tag_reward_for_tagger"]) if tagged else -cost
        reward[-1] += -F(o["tag_penalty_for_runner"]) if tagged else cost
        return self.observe(), reward, tagged or self.t == self.episode_length

    def observe(self) -> Any:
        """All agents' observations as things are now."""
        n, runner = self.num_agents, self.num_agents - 1
        scaled = self.cells.astype(F) / F(self.o["grid_length"])
        time = F(self.t) / F(self.episode_length)
        rows = []
        for i in range(n):
            if self.o["use_full_observation"]:
                is_runner, is_self = np.arange(n) == runner, np.arange(n) == i
                rows.append(
                    np.concatenate([scaled[:, 0], scaled[:, 1], is_runner, is_self, [time]])
                )
                continue
            squares = ((self.cells[:-1] - self.cells[-1]) ** 2).sum(axis=1)
            other = int(np.argmin(squares)) if i == runner else runner
            rows.append(np.array([*scaled[i], *scaled[other], i == runner, time]))
        return np.array(rows, F)
