// The style sheet of the page: page.css, which CMake puts into the program.
#pragma once

namespace sixfold::compare_strategies {

extern const char* const kPageStyle;

}  // namespace sixfold::compare_strategies
