// ranvier-plan: predicts how fast a training would be on machines that need not be there, and chooses its flags.
#include "apps/plan/plan_options.hpp"
#include "apps/plan/plan_run.hpp"
#include "apps/program/say_error.hpp"
#include "apps/program/version.hpp"
#include "runtime/exit_code.hpp"

#include <fmt/core.h>

#include <cstdlib>
#include <memory>

namespace {

constexpr const char* program = "ranvier-plan";

}  // namespace

int main(int argc, char** argv) {
  using namespace ranvier;
  try {
    const apps::PlanOptions options = apps::parse_plan_options(argc, argv);
    if (options.help || options.version) {
      fmt::print("{}\n", options.help ? apps::plan_help() : apps::version_text(program));
      return EXIT_SUCCESS;
    }
    const apps::PlanTools tools{
        .predict = actors::predict,
        .costs = [](const runtime::MachineProfile& profile) -> std::unique_ptr<runtime::CostModel> {
          return std::make_unique<runtime::ProfileCosts>(profile);
        },
        .read_profile = runtime::read_machine_profile};
    const apps::PlanResult result = apps::run_plan(options, tools);
    fmt::print("{}", result.text);
    return result.status;
  } catch (const std::exception& error) {
    apps::say_error(program, error.what());
    return exit_code(error_code(error));
  }
}
