#include "runtime/comm/host/choice.h"

#include <algorithm>

#include "runtime/comm/observe/profile_file.h"
#include "runtime/comm/observe/tune_file.h"

namespace sixfold::comm {

namespace {

// What a message takes at least between ranks that share cores: the sender has to be taken off its core first.
constexpr double kTurnSeconds = 10e-6;

std::optional<Profile> profile_of(const WorldOptions& options, bool oversubscribed) {
  if (!options.emulate_links.empty()) {
    Profile profile = emulated_profile(options);
    if (oversubscribed) profile.intra.alpha_s = profile.inter.alpha_s = kTurnSeconds;
    return profile;
  }
  if (!options.profile.empty()) return load_profile(options.profile);
  return std::nullopt;
}

}  // namespace

AlgorithmChoice::AlgorithmChoice(const WorldOptions& options, bool oversubscribed)
    : tune_file_(options.tune_file),
      profile_(profile_of(options, oversubscribed)),
      links_{options.links.num_slots, options.links.slot_bytes} {
  if (!tune_file_.empty()) tuned_ = read_tune_file(tune_file_);
}

const AlgorithmChoice::Table& AlgorithmChoice::table_for(const Topology& topology) {
  const auto [found, fresh] = tables_.try_emplace(topology.to_string());
  if (fresh) found->second = make_table(topology);
  return found->second;
}

AlgorithmChoice::Table AlgorithmChoice::make_table(const Topology& topology) {
  const bool measured = std::any_of(tuned_.rows.begin(), tuned_.rows.end(), [&](const SelectRow& row) {
    return row.num_ranks == topology.size() && row.num_nodes == topology.num_nodes();
  });
  if (measured) {
    Table table{{}, "measured, " + tune_file_};
    std::copy_if(tuned_.rows.begin(), tuned_.rows.end(), std::back_inserter(table.rows.rows),
                 [&](const SelectRow& row) {
                   return row.num_ranks == topology.size() && row.num_nodes == topology.num_nodes();
                 });
    return table;
  }
  if (!profile_ && !topology.spans_nodes()) return {default_select_table(topology), "the rule for one host"};
  const Profile profile = profile_ ? *profile_ : load_profile("host");
  return {make_select_table(profile, topology, links_), "cost model, profile " + profile.name};
}

}  // namespace sixfold::comm
