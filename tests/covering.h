// Pairwise covering: a small set of cases in which every two values of every two factors meet.
//
// Built greedily: of some random completions of a pair not covered yet, the one that covers most new pairs. Source:
// Cohen, Dalal, Fredman, Patton, "The AETG system: an approach to testing based on combinatorial design", 1997,
// section 5.
#pragma once

#include <functional>
#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace sixfold::test {

using Choice = std::vector<size_t>;  // by factor: the index of its value

/// `num_values[f]` values of factor f. Choices that `allowed` refuses are not made; pairs that occur in no allowed
/// choice that was tried are left out.
inline std::vector<Choice> covering_choices(const std::vector<size_t>& num_values,
                                            const std::function<bool(const Choice&)>& allowed, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::set<std::tuple<size_t, size_t, size_t, size_t>> missing;  // factor, value, later factor, value
  for (size_t a = 0; a < num_values.size(); ++a) {
    for (size_t b = a + 1; b < num_values.size(); ++b) {
      for (size_t i = 0; i < num_values[a]; ++i) {
        for (size_t k = 0; k < num_values[b]; ++k) missing.emplace(a, i, b, k);
      }
    }
  }
  const auto pairs_of = [&](const Choice& choice, const auto& use) {
    for (size_t a = 0; a < choice.size(); ++a) {
      for (size_t b = a + 1; b < choice.size(); ++b) use(std::tuple(a, choice[a], b, choice[b]));
    }
  };
  std::vector<Choice> choices;
  while (!missing.empty()) {
    const auto [a, i, b, k] = *missing.begin();
    Choice best;
    size_t best_gain = 0;
    for (int attempt = 0; attempt < 60; ++attempt) {
      Choice choice(num_values.size());
      for (size_t f = 0; f < choice.size(); ++f) choice[f] = random() % num_values[f];
      choice[a] = i;
      choice[b] = k;
      if (!allowed(choice)) continue;
      size_t gain = 0;
      pairs_of(choice, [&](const auto& pair) { gain += missing.count(pair); });
      if (gain > best_gain) best = choice, best_gain = gain;
    }
    missing.erase(missing.begin());
    if (best.empty()) continue;
    pairs_of(best, [&](const auto& pair) { missing.erase(pair); });
    choices.push_back(best);
  }
  return choices;
}

}  // namespace sixfold::test
