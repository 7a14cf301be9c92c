// AlgorithmChoice: by which table the groups of a rank choose their algorithms.
//
//   --tune-file          measured rows, for the kinds of groups that it has
//   cost model           of --profile or --emulate-links, where given; of the shipped profile "host" for groups that
//                        span nodes
//   rule for one host    else (schedule/select.h)
#pragma once

#include <map>
#include <optional>
#include <string>

#include "runtime/comm/schedule/tune.h"
#include "runtime/comm/world.h"

namespace sixfold::comm {

class AlgorithmChoice {
 public:
  /// `oversubscribed`: as in HostWorldParts. Throws ConfigError for a profile or a file that cannot be read.
  AlgorithmChoice(const WorldOptions& options, bool oversubscribed);

  struct Table {
    SelectTable rows;
    std::string source;  // for --debug
  };
  /// Made at first use for a topology; it stays where it is. The same on all ranks.
  const Table& table_for(const Topology& topology);

 private:
  Table make_table(const Topology& topology);

  std::string tune_file_;
  SelectTable tuned_;
  std::optional<Profile> profile_;  // asked for
  LinkShape links_;
  std::map<std::string, Table> tables_;  // by Topology::to_string()
};

}  // namespace sixfold::comm
