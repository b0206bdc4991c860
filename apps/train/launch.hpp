// From parsed options and a model to a finished run: what ranvier-train and programs with stages of their own
// have in common.
//
//   int main(int argc, char** argv) {
//     return apps::launch("my-train", argc, argv, [](const apps::TrainOptions& options) { … return job; });
//   }
#pragma once

#include "apps/train/job.hpp"
#include "apps/train/options/train_options.hpp"

#include <functional>

namespace ranvier::apps {

/// Builds the same job on every rank; may throw on any of them.
using JobBuilder = std::function<Job(const TrainOptions&)>;

/// Initialises MPI, parses, builds, trains, reports, saves. Returns the exit status. An error ends all ranks
/// and is printed once, by one of them.
[[nodiscard]] int launch(const char* program, int argc, char** argv, const JobBuilder& build);

}  // namespace ranvier::apps
