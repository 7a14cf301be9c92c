// The three kinds of error.
//
//   ConfigError     the user asked for something impossible; the text names the flag, the value and the allowed values
//   CommError       a peer, a link, a mismatch or a deadline; the text names rank, group, sequence number, operation
//   SIXFOLD_CHECK   an invariant of ours is broken; the text holds the expression, both operands and the place
//
// All are exceptions. Nothing below main() ends the process.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace sixfold {

class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class CommError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown by SIXFOLD_CHECK: a bug in Sixfold or a call that breaks a documented precondition.
class CheckError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {
[[noreturn]] void throw_check(const char* file, int line, const char* expression, const std::string& operands,
                              const std::string& hint);

template <typename A, typename B>
[[noreturn]] void throw_check_operands(const char* file, int line, const char* expression, const A& a, const B& b,
                                       const std::string& hint) {
  std::ostringstream text;
  text << a << " vs " << b;
  throw_check(file, line, expression, text.str(), hint);
}
}  // namespace detail

}  // namespace sixfold

#define SIXFOLD_CHECK(condition, hint)                                          \
  do {                                                                          \
    if (!(condition)) [[unlikely]]                                              \
      ::sixfold::detail::throw_check(__FILE__, __LINE__, #condition, "", hint); \
  } while (0)

#define SIXFOLD_CHECK_OP(a, op, b, hint)                                                                               \
  do {                                                                                                                 \
    const auto& sixfold_check_a = (a);                                                                                 \
    const auto& sixfold_check_b = (b);                                                                                 \
    if (!(sixfold_check_a op sixfold_check_b)) [[unlikely]]                                                            \
      ::sixfold::detail::throw_check_operands(__FILE__, __LINE__, #a " " #op " " #b, sixfold_check_a, sixfold_check_b, \
                                              hint);                                                                   \
  } while (0)

#define SIXFOLD_CHECK_EQ(a, b, hint) SIXFOLD_CHECK_OP(a, ==, b, hint)
#define SIXFOLD_CHECK_LE(a, b, hint) SIXFOLD_CHECK_OP(a, <=, b, hint)
#define SIXFOLD_CHECK_LT(a, b, hint) SIXFOLD_CHECK_OP(a, <, b, hint)
