// How products and attention are done on GPUs: rank 0 finds the fastest kernels before the first step, or remembers
// them (models/ops/kernel_choice_file.hpp), and all ranks take these, so that rows of a column add up in the same
// order. Declared in every build and defined where with_cuda is true (runtime/cuda_build.hpp).
#pragma once

#include "apps/train/options/train_options.hpp"
#include "runtime/mpi_transport.hpp"
#include "runtime/stream.hpp"

#include <functional>

namespace ranvier::apps {

/// All ranks call it, and wait for rank 0 in a broadcast. `run_layers` queues everything that training will do on a
/// stream of `device`. Says on rank 0 what was chosen; does nothing off a GPU and in fp32, whose bits are the same
/// in every run. Throws FailedTogether.
void choose_kernels(runtime::MpiSession& session, const TrainOptions& options, runtime::Device& device,
                    const std::function<void(runtime::StreamView)>& run_layers);

}  // namespace ranvier::apps
