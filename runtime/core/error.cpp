#include "runtime/core/error.h"

namespace sixfold::detail {

void throw_check(const char* file, int line, const char* expression, const std::string& operands,
                 const std::string& hint) {
  std::ostringstream text;
  text << "check failed: " << expression;
  if (!operands.empty()) text << " (" << operands << ")";
  if (!hint.empty()) text << ": " << hint;
  text << " [" << file << ":" << line << "]";
  throw CheckError(text.str());
}

}  // namespace sixfold::detail
