// Who computes attention on a GPU, pass by pass and shape by shape: our own kernels or cuDNN's. The bits differ, so
// one rank decides, and all ranks take what it chose, before the first step.
//
//   AttentionChoices chosen;
//   if (rank == 0) chosen = measure_attention(stream, [&] { /* everything once */ }).choices;
//   /* rank 0's to all: kernel_choice_file.hpp writes and reads them */
//   const bool all_can = /* of all ranks */ adopt_attention(stream, chosen);
//   if (!all_can) forget_attention(stream);
//
// AttentionKernels::own is never asked; ::measured takes cuDNN where it was the faster one, and our own kernels for
// what was not met; ::cudnn takes it for what was met wherever it has a kernel.
//
// Declared in every build, defined where with_cuda is true (runtime/cuda_build.hpp). Loop thread only.
#pragma once

#include "models/ops/attention.hpp"
#include "runtime/stream.hpp"

#include <compare>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace ranvier::models {

/// Whether the build has cuDNN, so that memory is planned for it.
[[nodiscard]] bool attention_library_built();

/// Opens cuDNN. Empty: it can be asked; otherwise what is missing, and a remedy.
[[nodiscard]] std::string attention_library_obstacle();

/// All that a pass depends on.
struct AttentionTask {
  int samples = 1, positions = 1, heads = 1, channels = 1;  ///< as in AttentionShape
  runtime::DType dtype = runtime::DType::bf16;
  AttentionPass pass = AttentionPass::forward;
  int key_heads = 1;  ///< K
  bool causal = true;
  int window = 0;  ///< less than `positions`; 0: none

  auto operator<=>(const AttentionTask&) const = default;
};

struct AttentionChoice {
  AttentionTask task;
  bool by_library = false;

  bool operator==(const AttentionChoice&) const = default;
};

/// Whom choices hold for: the kind of GPU that measured, and cuDNN's version, such as 91900.
struct AttentionLibrary {
  std::string gpu;
  std::size_t version = 0;

  bool operator==(const AttentionLibrary&) const = default;
};

struct AttentionChoices {
  AttentionLibrary of;
  std::vector<AttentionChoice> choices;  ///< by task, each once

  bool operator==(const AttentionChoices&) const = default;
};

[[nodiscard]] AttentionLibrary attention_library(runtime::StreamView stream);

struct MeasuredAttention {
  AttentionChoices choices;    ///< what this process now does on that GPU
  std::size_t remembered = 0;  ///< of these, as they were known
};

/// Runs `work`, which queues passes of attention on `stream` of a GPU. Each that is new is done as in `known`, if
/// that is of this GPU and this cuDNN and can be done; otherwise it is planned, compiled, and where its kernels are
/// `measured` timed beside our own. Blocks.
[[nodiscard]] MeasuredAttention measure_attention(runtime::StreamView stream, const std::function<void()>& work,
                                                  const AttentionChoices& known = {});

/// From now on attention on the stream's GPU is done as measure_attention() of another rank says. False, and
/// nothing changed: a pass that another cuDNN does cannot be done so here.
[[nodiscard]] bool adopt_attention(runtime::StreamView stream, const AttentionChoices& choices);

/// Our own kernels do what was chosen so far.
void forget_attention(runtime::StreamView stream);

/// "cuDNN 9.19.0".
[[nodiscard]] std::string cudnn_text(std::size_t version);

/// For people, such as "cuDNN 9.19.0 for 3 of 4 passes"; with what cuDNN said of the first pass that it has no
/// kernel for, and whether bits differ from run to run.
[[nodiscard]] std::string attention_description(runtime::StreamView stream);

}  // namespace ranvier::models
