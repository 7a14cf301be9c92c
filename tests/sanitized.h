// Whether a sanitizer watches: a test then takes ten to twenty times as long, and a few of each kind show what it can
// see.
#pragma once

namespace sixfold::test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace sixfold::test
