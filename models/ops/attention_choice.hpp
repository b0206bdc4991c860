// Who computes attention on a GPU, pass by pass and shape by shape: our own kernels or cuDNN's. The bits differ, so one
// rank decides, and all ranks take what it chose, before the first step.
//
//   std::vector<std::byte> chosen;
//   if (rank == 0) chosen = measure_attention(stream, [&] { /* everything once */ });
//   /* rank 0's to all */
//   const bool all_can = /* of all ranks */ adopt_attention(stream, chosen);
//   if (!all_can) forget_attention(stream);
//
// AttentionKernels::own is never asked; ::measured takes cuDNN where it was the faster one, and our own kernels for what
// was not met; ::cudnn takes it for what was met wherever it has a kernel.
//
// Declared in every build, defined where with_cuda is true (runtime/cuda_build.hpp). Loop thread only.
#pragma once

#include "models/ops/attention.hpp"
#include "runtime/stream.hpp"

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::models {

/// Whether the build has cuDNN, so that memory is planned for it.
[[nodiscard]] bool attention_library_built();

/// Opens cuDNN. Empty: it can be asked; otherwise what is missing, and a remedy.
[[nodiscard]] std::string attention_library_obstacle();

/// Runs `work`, which queues passes of attention on `stream` of a GPU: each that is new is planned, compiled, and where
/// its kernels are `measured` timed beside our own. Blocks. What this process now does on that GPU.
[[nodiscard]] std::vector<std::byte> measure_attention(runtime::StreamView stream, const std::function<void()>& work);

/// From now on attention on the stream's GPU is done as measure_attention() of another rank says. False, and nothing
/// changed: a pass that another cuDNN does cannot be done so here. Throws ErrorCode::internal for bytes that are no
/// choices.
[[nodiscard]] bool adopt_attention(runtime::StreamView stream, std::span<const std::byte> choices);

/// Our own kernels do what was chosen so far.
void forget_attention(runtime::StreamView stream);

/// For people, such as "cuDNN 9.19.0 for 3 of 4 passes"; with what cuDNN said of the first pass that it has no kernel
/// for.
[[nodiscard]] std::string attention_description(runtime::StreamView stream);

}  // namespace ranvier::models
