// ranvier-tokenize: converts text files to token files for ranvier-train, llm.c or Megatron.
#include "apps/program/flag_names.hpp"
#include "apps/program/print_error.hpp"
#include "apps/tokenize/tokenize_run.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

using namespace ranvier;
using Clock = std::chrono::steady_clock;

/// Progress bar on a terminal; prints nothing elsewhere.
class ProgressBar {
 public:
  void show(std::uint64_t done, std::uint64_t all) {
    const auto now = Clock::now();
    if (!shown_ || (done < all && now - last_ < std::chrono::milliseconds(100))) return;
    if (!first_) first_ = done;
    last_ = now;
    constexpr std::uint64_t width = 40;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const double rate = static_cast<double>(done - *first_) / seconds;
    const auto filled = static_cast<std::size_t>(width * done / all);
    fmt::print(stderr, "\r{}{} {:3}%  {:.1f} MB/s ", std::string(filled, '#'), std::string(width - filled, '.'),
               100 * done / all, rate * 1e-6);
    std::fflush(stderr);
  }
  ~ProgressBar() {
    if (first_) fmt::print(stderr, "\n");
  }

 private:
  bool shown_ = ::isatty(STDERR_FILENO) != 0;
  Clock::time_point begin_ = Clock::now(), last_ = begin_;
  std::optional<std::uint64_t> first_;
};

int run(const apps::TokenizeOptions& options) {
  const auto begin = Clock::now();
  const apps::TokenizeInput input = apps::find_input(options);
  for (const std::string& remark : input.remarks) fmt::print("{}\n", apps::with_flags(remark));
  std::fflush(stdout);
  apps::TokenizeResult result;
  {
    ProgressBar bar;
    result = apps::tokenize(options, input, [&](std::uint64_t done, std::uint64_t all) { bar.show(done, all); });
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (result.skipped_bytes > 0) fmt::print("continued an interrupted run after {} bytes\n", result.skipped_bytes);
  for (const std::string& remark : result.remarks) fmt::print("{}\n", apps::with_flags(remark));
  fmt::print("{} documents in {} files of {} bytes: {} tokens in {:.1f} s, {:.1f} MB/s\n", result.documents,
             input.files.size(), input.bytes, result.tokens, seconds,
             static_cast<double>(input.bytes - result.skipped_bytes) / seconds * 1e-6);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_program("ranvier-tokenize", argc, argv, apps::parse_tokenize_options, apps::tokenize_manual,
                           run);
}
