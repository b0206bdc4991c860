// ranvier-report: a page about runs of ranvier-train, from the files that they wrote.
#include "apps/program/print_error.hpp"
#include "apps/report/report_options.hpp"
#include "runtime/base/error.hpp"

#include <fmt/core.h>

#include <cstdlib>

namespace {

constexpr const char* program = "ranvier-report";

}  // namespace

int main(int argc, char** argv) {
  using namespace ranvier;
  try {
    const apps::ReportOptions options = apps::parse_report_options(argc, argv);
    if (options.info.any()) {
      fmt::print("{}\n", apps::answer(options.info, apps::report_manual()));
      return EXIT_SUCCESS;
    }
    fmt::print("{}", apps::write_report(options));
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    apps::print_error(program, error.what());
    return exit_code(error_code(error));
  }
}
