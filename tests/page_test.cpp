// The page of compare_strategies in a browser: nothing is asked for from elsewhere, no error, every chart is drawn at
// the width of a telephone and of a desk, and its numbers are those of the JSON.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <regex>
#include <sstream>

#include "tests/subprocess.h"

namespace sixfold::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const std::string kProgram = SIXFOLD_BUILD_DIR "/compare_strategies ";

bool succeeds(const std::string& command) {
  return run_command(command).exit_code == 0;
}

// What a reader would see, measured after layout: written to the page's title, for --dump-dom to tell.
const std::string kLook = R"(<script>
let bad = [];
for (const svg of document.querySelectorAll('svg')) {
  const box = svg.getBoundingClientRect();
  if (box.width < 100 || box.height < 10) bad.push('svg ' + box.width + ' x ' + box.height);
}
for (const shape of document.querySelectorAll('svg rect, svg path')) {
  if (shape.getBBox().width <= 0) bad.push('empty ' + shape.outerHTML);
  if (getComputedStyle(shape).fill == 'rgb(0, 0, 0)') bad.push('no colour ' + shape.outerHTML);
}
for (const text of document.querySelectorAll('.value, .label, .ticks span')) {
  const box = text.getBoundingClientRect();
  if (box.right > innerWidth + 1 || box.left < -1 || box.height == 0) bad.push('outside ' + text.outerHTML);
}
for (const ticks of document.querySelectorAll('.ticks')) {
  let end = -100;
  for (const tick of ticks.children) {
    const box = tick.getBoundingClientRect();
    if (box.left < end + 6) bad.push('too near ' + ticks.textContent);
    end = box.right;
  }
}
const colours = [...document.querySelectorAll('#colours-of-timelines .swatch')].map(
    swatch => getComputedStyle(swatch).backgroundColor);
if (colours.length < 6 || new Set(colours).size < colours.length) bad.push('colours of timelines: ' + colours);
if (document.documentElement.scrollWidth > innerWidth) bad.push('wider than the window');
if (performance.getEntriesByType('resource').length > 0) bad.push('asked for a resource');
document.title = 'SEEN at ' + innerWidth + ': ' + (bad.length == 0 ? 'all good' : bad.slice(0, 5).join('; '));
</script>)";

class Page : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::temp_directory_path() / ("sixfold_page_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    const Outcome outcome =
        run_command(kProgram +
                    "--ranks 4 --data " SIXFOLD_SOURCE_DIR
                    "/README.md --layers 2 --dim 16 --heads 2 --seq-len 16 --global-batch 8 --steps 3 --threads 1 "
                    "--strategies one,ddp,dp2xtp2+megatron+zero1,pp2xdp2+gpipe --topology 2x2 "
                    "--emulate-links intra=300,inter=25,scale=0.01 --profile h100-ndr --json " +
                    (folder_ / "json").string() + " --html " + (folder_ / "page.html").string());
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    json_ = json::parse(std::ifstream(folder_ / "json"));
    std::stringstream text;
    text << std::ifstream(folder_ / "page.html").rdbuf();
    html_ = text.str();
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }

  static inline fs::path folder_;
  static inline json json_;
  static inline std::string html_;
};

struct DrawnBar {
  std::string label;
  std::vector<double> values;
};

/// The bars of one chart as the page has them.
std::vector<DrawnBar> bars_of(const std::string& html, const std::string& id) {
  const size_t start = html.find("id=\"" + id + "\"");
  if (start == std::string::npos) return {};
  const std::string chart = html.substr(start, html.find("<details>", start) - start);
  std::vector<DrawnBar> bars;
  const std::regex bar("data-label=\"([^\"]*)\" data-values=\"([^\"]*)\"");
  for (std::sregex_iterator it(chart.begin(), chart.end(), bar), end; it != end; ++it) {
    DrawnBar& drawn = bars.emplace_back(DrawnBar{(*it)[1], {}});
    std::istringstream values((*it)[2]);
    for (double value; values >> value;) drawn.values.push_back(value);
  }
  return bars;
}

TEST_F(Page, NeedsNothingElse) {
  for (const char* word : {"http:", "https:", "//cdn", "@import", "url(", " src=", "<script>", "<link rel=\"style"}) {
    EXPECT_EQ(html_.find(word), std::string::npos) << word;
  }
  EXPECT_NE(html_.find("prefers-color-scheme: dark"), std::string::npos);
  const std::regex data("<script type=\"application/json\" id=\"data\">([^\n]*)</script>");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(html_, found, data));
  EXPECT_EQ(json::parse(found[1].str()), json_);
}

TEST_F(Page, ChartsShowTheNumbersOfTheJson) {
  const json& strategies = json_["strategies"];
  const auto steps = bars_of(html_, "steps"), bytes = bars_of(html_, "bytes"), memory = bars_of(html_, "memory");
  ASSERT_EQ(steps.size(), 4u);
  ASSERT_EQ(bytes.size(), 4u);
  ASSERT_EQ(memory.size(), 4u);
  const auto sum = [](const DrawnBar& bar) { return std::accumulate(bar.values.begin(), bar.values.end(), 0.0); };
  for (size_t i = 0; i < 4; ++i) {
    const json& s = strategies[i];
    for (const auto* chart : {&steps, &bytes, &memory}) EXPECT_EQ((*chart)[i].label, s["name"]);
    EXPECT_NEAR(sum(steps[i]), s["step_ms"], 1e-9);
    EXPECT_NEAR(steps[i].values.at(1) + steps[i].values.at(2), s["exposed_ms"], 1e-9);
    EXPECT_NEAR(sum(bytes[i]), s["sent_bytes"].get<double>() / 1e6, 1e-9);
    for (size_t c = 0; c < 6; ++c) {
      EXPECT_NEAR(memory[i].values.at(c), s["memory"][c]["peak_bytes"].get<double>() / 1e6, 1e-9);
    }
  }
  for (size_t profile = 0; profile < 2; ++profile) {
    const auto axes = bars_of(html_, "axes-" + std::to_string(profile));
    ASSERT_EQ(axes.size(), 5u);  // ddp: dp; two axes of both mixes
    const json& tp = strategies[2]["verdicts"][profile]["axes"][0];
    EXPECT_NEAR(axes[1].values.at(0), tp["inside"]["waited_ms"], 1e-9);
    EXPECT_NEAR(sum(axes[1]), tp["across"]["waited_ms"], 1e-9);
  }
  EXPECT_EQ(bars_of(html_, "placements").size(), 4u);
  EXPECT_EQ(times(html_, "class=\"strip\""), 13);  // one rank, and three times four
}

TEST_F(Page, IsDrawnAtAnyWidthWithoutAnError) {
  if (!succeeds("which chromium")) {
    ASSERT_FALSE(succeeds("apt-cache show chromium")) << "no chromium here: tests/run.sh installs it";
    GTEST_SKIP() << "no chromium, and apt has no such package";
  }
  const size_t end = html_.find("</body>");
  std::ofstream(folder_ / "look.html") << html_.substr(0, end) << kLook << html_.substr(end);
  for (const std::string width : {"390", "1280"}) {
    // In a frame, since a window is not as narrow as a telephone.
    std::ofstream(folder_ / "frame.html") << "<title></title><iframe src=\"look.html\" width=\"" << width
                                          << "\" height=\"900\" style=\"border: 0\" "
                                             "onload=\"document.title = this.contentDocument.title\"></iframe>";
    const Outcome outcome =
        run_command("chromium --headless --no-sandbox --disable-gpu --enable-logging=stderr --user-data-dir=" +
                        (folder_ / "profile").string() +
                        " --allow-file-access-from-files --window-size=1400,1000 --dump-dom file://" +
                        (folder_ / "frame.html").string(),
                    40);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output.substr(0, 2000);
    EXPECT_EQ(outcome.output.find("CONSOLE"), std::string::npos) << outcome.output.substr(0, 2000);
    const size_t title = outcome.output.find("<title>SEEN");
    ASSERT_NE(title, std::string::npos) << outcome.output.substr(0, 2000);
    EXPECT_EQ(outcome.output.substr(title, outcome.output.find("</title>", title) - title),
              "<title>SEEN at " + width + ": all good");
  }
}

}  // namespace
}  // namespace sixfold::test
