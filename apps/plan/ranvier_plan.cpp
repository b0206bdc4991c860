// ranvier-plan: predicts the step time of a training job on the machines of a profile, and chooses its flags.
#include "apps/plan/plan_options.hpp"
#include "apps/plan/plan_run.hpp"
#include "apps/program/print_error.hpp"

#include <fmt/core.h>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

namespace {

/// Progress on standard error: one updated line on a terminal, otherwise a line at most every 10 s.
class StatusLine {
 public:
  void print(const std::string& text, bool stays) {
    const auto now = std::chrono::steady_clock::now();
    const auto between = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000);
    if (!stays && now - last_ < between) return;
    last_ = now;
    if (terminal_) fmt::print(stderr, "\r\033[K{}{}", text, stays ? "\n" : "");
    if (!terminal_) fmt::print(stderr, "{}\n", text);
    std::fflush(stderr);
    open_ = terminal_ && !stays;
  }
  void clear() {
    if (std::exchange(open_, false)) fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
  }
  ~StatusLine() { clear(); }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  bool open_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

int main(int argc, char** argv) {
  using namespace ranvier::apps;
  return run_program("ranvier-plan", argc, argv, parse_plan_options, plan_manual, [](PlanOptions& options) {
    StatusLine status;
    if (const std::string found = add_found_profile(options, profile_search_path()); !found.empty())
      status.print("profile: " + found, true);
    const PlanTools tools{.print = [&status](const std::string& text, bool stays) { status.print(text, stays); }};
    const PlanResult result = run_plan(options, tools);
    status.clear();
    fmt::print("{}", result.text);
    return result.status;
  });
}
