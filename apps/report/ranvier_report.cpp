// ranvier-report: a page about runs of ranvier-train, from the files that they wrote.
#include "apps/program/print_error.hpp"
#include "apps/report/report_options.hpp"

#include <fmt/core.h>

#include <cstdlib>

int main(int argc, char** argv) {
  using namespace ranvier::apps;
  return run_program("ranvier-report", argc, argv, parse_report_options, report_manual,
                     [](const ReportOptions& options) {
                       fmt::print("{}", write_report(options));
                       return EXIT_SUCCESS;
                     });
}
