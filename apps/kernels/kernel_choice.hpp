// Choice of kernels for matrix multiplications and attention on GPUs. Rank 0 measures them before the first step, or
// reads them from a file (models/ops/kernel_choice_file.hpp). All ranks use the same kernels, so that rows of a column
// have the same order of sums. Defined only in builds with CUDA (runtime/device/cuda_build.hpp).
#pragma once

#include "apps/options/train_options.hpp"
#include "runtime/device/stream.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <functional>

namespace ranvier::apps {

/// All ranks call it; blocks until rank 0 has chosen. `run_layers` queues all layers of training on a stream of
/// `device`. Rank 0 prints the choice. Does nothing on a CPU or in fp32, whose bits are the same in every run. Throws
/// FailedTogether.
void choose_kernels(runtime::MpiSession& session, const TrainOptions& options, runtime::Device& device,
                    const std::function<void(runtime::StreamView)>& run_layers);

}  // namespace ranvier::apps
