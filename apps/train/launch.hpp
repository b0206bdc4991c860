// Main function of training programs: parse, agree, plan, build, train, save, report.
//
//   int main(int argc, char** argv) {
//     return apps::launch("my-train", argc, argv, [](const apps::TrainOptions& options) { … return job; });
//   }
#pragma once

#include "apps/job/job.hpp"
#include "apps/options/train_options.hpp"

namespace ranvier::apps {

/// Runs a training program and returns its exit status. An error ends all ranks and is printed by one of them.
[[nodiscard]] int launch(const char* program, int argc, char** argv, const JobBuilder& build);

}  // namespace ranvier::apps
