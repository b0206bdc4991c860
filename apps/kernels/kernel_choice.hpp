// Choice of kernels for matrix multiplications and attention on GPUs. Rank 0 measures them before the first step, or
// reads them from a file (models/ops/kernel_choice_file.hpp). All ranks use the same kernels, so that rows of a column
// have the same order of sums.
#pragma once

#include "apps/options/train_options.hpp"
#include "runtime/device/stream.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <functional>

namespace ranvier::apps {

/// Attention kernels on GPUs that the options allow (models/ops/attention_choice.hpp); callable from any thread.
/// Built-in kernels if cuDNN is not possible or not measured: on a CPU, in fp32, with dropout or document masks, or in
/// a build without cuDNN (`library_is_built`). Throws ErrorCode::usage if --attention cudnn is not possible, or if
/// --attention-backward fast has no use.
[[nodiscard]] models::AttentionKernels attention_kernels(const TrainOptions& options, bool library_is_built);

/// Same for this build.
[[nodiscard]] models::AttentionKernels attention_kernels(const TrainOptions& options);

/// All ranks call it; blocks until rank 0 has chosen. `run_layers` queues all layers of training on a stream of
/// `device`. Rank 0 prints the choice. Does nothing on a CPU or in fp32, whose bits are the same in every run. Throws
/// FailedTogether. Defined only in builds with CUDA (runtime/device/cuda_build.hpp).
void choose_kernels(runtime::MpiSession& session, const TrainOptions& options, runtime::Device& device,
                    const std::function<void(runtime::StreamView)>& run_layers);

}  // namespace ranvier::apps
