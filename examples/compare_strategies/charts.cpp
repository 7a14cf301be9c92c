#include "examples/compare_strategies/charts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace sixfold::compare_strategies {

namespace {

constexpr double kWidth = 1000;  // of the drawings, in their own units
constexpr double kHeight = 20;

std::string short_number(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

std::string legend_html(const BarChart& chart) {
  std::string html = "<ul class=\"legend\">";
  for (const Series& series : chart.series) {
    html += "<li><span class=\"swatch " + series.colour + "\"></span>" + escaped(series.name) + "</li>";
  }
  if (!chart.mark_name.empty()) html += "<li><span class=\"swatch mark\"></span>" + escaped(chart.mark_name) + "</li>";
  return html + "</ul>\n";
}

std::string rect(double x, double width, const std::string& colour, const std::string& title) {
  return "<rect class=\"" + colour + "\" x=\"" + short_number(x, 2) + "\" y=\"0\" width=\"" + short_number(width, 2) +
         "\" height=\"" + short_number(kHeight, 0) + "\"><title>" + escaped(title) + "</title></rect>";
}

std::string line(double x, const char* colour) {
  const std::string at = short_number(x, 2);
  return "<line class=\"" + std::string(colour) + "\" x1=\"" + at + "\" x2=\"" + at + "\" y1=\"0\" y2=\"" +
         short_number(kHeight, 0) + "\"/>";
}

std::string bar_svg(const BarChart& chart, const Bar& bar, const std::vector<double>& ticks) {
  const double scale = kWidth / ticks.back();
  std::string svg = "<svg viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"" +
                    escaped(bar.label + ": " + bar.text) + "\">";
  for (double tick : ticks) svg += line(scale * tick, "grid");
  double x = 0;
  for (size_t i = 0; i < bar.values.size(); ++i) {
    const double value = bar.values[i];
    if (scale * value < 0.005) continue;  // no wider than 0.00
    svg += rect(scale * x, scale * value, chart.series[i].colour,
                chart.series[i].name + ": " + short_number(value, chart.decimals) + " " + chart.unit);
    x += value;
  }
  if (bar.mark) svg += line(scale * *bar.mark, "mark");
  return svg + "</svg>";
}

std::string bar_html(const BarChart& chart, const Bar& bar, const std::vector<double>& ticks) {
  std::string values;
  for (double value : bar.values) values += (values.empty() ? "" : " ") + number_text(value);
  std::string html = "<div class=\"bar" + std::string(bar.begins_group ? " gap" : "") + "\" data-label=\"" +
                     escaped(bar.label) + "\" data-values=\"" + values + "\">";
  html += "<div class=\"label\">" + escaped(bar.label);
  if (!bar.note.empty()) html += " <small>" + escaped(bar.note) + "</small>";
  html += "</div><div class=\"drawing\">" + bar_svg(chart, bar, ticks) + "</div>";
  return html + "<div class=\"value\">" + escaped(bar.text) + "</div></div>\n";
}

double length_of(const Bar& bar) {
  return std::max(std::accumulate(bar.values.begin(), bar.values.end(), 0.0), bar.mark.value_or(0));
}

}  // namespace

std::vector<double> axis_ticks(double largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return {0, 1};
  const double power = std::pow(10, std::floor(std::log10(largest)));
  double step = power;
  for (double candidate : {0.2, 0.25, 0.5, 1.0, 2.0}) {
    step = candidate * power;
    if (std::ceil(largest / step) <= 5) break;
  }
  std::vector<double> ticks;
  const int last = std::max(1, static_cast<int>(std::ceil(largest / step - 1e-9)));
  for (int i = 0; i <= last; ++i) ticks.push_back(std::round(i * step / power * 100) * power / 100);
  return ticks;
}

std::string axis_html(const std::vector<double>& ticks, const std::string& unit) {
  std::string html = "<div class=\"axis\" aria-hidden=\"true\"><div class=\"ticks\">";
  for (double tick : ticks) {
    const double place = 100 * tick / ticks.back();
    const char* edge = tick == 0 ? " class=\"first\"" : tick == ticks.back() ? " class=\"last\"" : "";
    html += "<span" + std::string(edge) + " style=\"left:" + number_text(place) + "%\">" + number_text(tick) +
            (tick == 0 ? " " + escaped(unit) : "") + "</span>";
  }
  return html + "</div></div>\n";
}

std::string bar_chart_html(const BarChart& chart) {
  double largest = 0;
  for (const Bar& bar : chart.bars) largest = std::max(largest, length_of(bar));
  const std::vector<double> ticks = axis_ticks(largest);
  std::string html = "<div class=\"chart\" id=\"" + chart.id + "\">\n" + legend_html(chart);
  html += axis_html(ticks, chart.unit);
  for (const Bar& bar : chart.bars) html += bar_html(chart, bar, ticks);
  return html + "</div>\n";
}

std::string escaped(const std::string& text) {
  std::string html;
  for (char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string number_text(double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return {text, end};
}

}  // namespace sixfold::compare_strategies
