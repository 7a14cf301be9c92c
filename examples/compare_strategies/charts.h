// Bar charts as HTML: each bar an SVG that stretches to the width there is, every word and number text beside it, so
// that it can be read on a telephone and copied. No script. Colours are classes c1 .. c10 of page.css. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace sixfold::compare_strategies {

struct Series {
  std::string name;
  std::string colour;  // class
};

/// One bar: a value for each series, stacked.
struct Bar {
  std::string label, note;     // the note is small
  std::vector<double> values;  // >= 0, one a series
  std::string text;            // at its end
  std::optional<double> mark;  // a line across it, at this value
  bool begins_group = false;   // some space above
};

struct BarChart {
  std::string id;
  std::string unit;       // of values, on the axis
  std::string mark_name;  // of marks, for the legend; empty: there are none
  std::vector<Series> series;
  std::vector<Bar> bars;
  int decimals = 1;  // of values in tooltips
};

/// Legend, axis and bars. Each bar's element has data-label and data-values ("1.5 0 2") for programs.
std::string bar_chart_html(const BarChart& chart);

/// Round numbers from 0 up: the last is the first of them that is at least `largest`; 3 to 6 of them.
std::vector<double> axis_ticks(double largest);

/// The axis above or below drawings: ticks at their places, the unit with the first, which has most room.
std::string axis_html(const std::vector<double>& ticks, const std::string& unit);

/// With &, <, > and quotes as HTML wants them.
std::string escaped(const std::string& text);
/// The shortest decimal that reads as the same number.
std::string number_text(double value);

}  // namespace sixfold::compare_strategies
