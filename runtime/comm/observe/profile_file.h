// Hardware profiles as JSON: those that are shipped (profiles/*.json, embedded when CMake configures) and those of a
// user. All numbers are per direction; gb_per_s is 1e9 bytes per second.
//
//   {"name": "a100-hdr", "comment": "...",
//    "intra": {"alpha_us": 1.9, "gb_per_s": 300, "source": "..."},
//    "inter": {"alpha_us": 4.0, "gb_per_s": 25, "source": "..."},
//    "num_rails": 8, "reduce_gb_per_s": 518, "reduce_source": "..."}
//
// copy_gb_per_s and matmul_tflops may be given too (Profile::copy_bytes_per_s, matmul_flops); comment, source,
// reduce_source and matmul_source may be left out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/schedule/profile.h"

namespace sixfold::comm {

/// Names of the profiles that are shipped, in alphabetical order.
std::vector<std::string> builtin_profile_names();

/// What --profile `name_or_file` means: a file where it holds a '/' or ends in ".json", else a shipped profile. Throws
/// ConfigError that names the flag, the value, and the allowed names or what is wrong in the file.
Profile load_profile(const std::string& name_or_file);

/// One profile from the text of such a file. Throws ConfigError, which begins with `where`, on a key that is missing,
/// unknown or given twice and on a value that is no number or out of range.
Profile parse_profile(std::string_view text, const std::string& where);

}  // namespace sixfold::comm
