// Choice between our own kernels and cuDNN's attention on a GPU, per pass and shape. Their results differ in bits, so
// rank 0 decides before the first step and all ranks adopt its choices. Declared in every build, defined if with_cuda
// is true (runtime/device/cuda_build.hpp). Loop thread only.
//
//   AttentionChoices chosen;
//   if (rank == 0) chosen = measure_attention(stream, [&] { /* every operation once */ }).choices;
//   /* broadcast as text (kernel_choice_file.hpp) */
//   if (!/* on all ranks */ adopt_attention(stream, chosen)) forget_attention(stream);
#pragma once

#include "models/ops/attention.hpp"
#include "runtime/device/stream.hpp"

#include <compare>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace ranvier::models {

/// Whether the build includes cuDNN, so that memory is planned for it.
[[nodiscard]] bool attention_library_built();

/// Opens cuDNN. Returns an empty string, or the missing part and a remedy.
[[nodiscard]] std::string attention_library_obstacle();

/// Everything that the choice for a pass depends on.
struct AttentionTask {
  int samples = 1, positions = 1, heads = 1, channels = 1;  ///< as in AttentionShape
  runtime::DType dtype = runtime::DType::bf16;
  AttentionPass pass = AttentionPass::forward;
  int key_heads = 1;  ///< K
  bool causal = true;
  int window = 0;  ///< less than `positions`; 0: no window

  auto operator<=>(const AttentionTask&) const = default;
};

struct AttentionChoice {
  AttentionTask task;
  bool by_library = false;

  bool operator==(const AttentionChoice&) const = default;
};

/// GPU and library for which choices are valid: the GPU's name, and cuDNN's version, such as 91900.
struct AttentionLibrary {
  std::string gpu;
  std::size_t version = 0;

  bool operator==(const AttentionLibrary&) const = default;
};

struct AttentionChoices {
  AttentionLibrary of;
  std::vector<AttentionChoice> choices;  ///< ordered by task, each once

  bool operator==(const AttentionChoices&) const = default;
};

[[nodiscard]] AttentionLibrary attention_library(runtime::StreamView stream);

struct MeasuredAttention {
  AttentionChoices choices;    ///< choices that this process now uses on that GPU
  std::size_t remembered = 0;  ///< number of choices taken from `known`
};

/// Runs `work`, which queues attention passes on `stream` of a GPU, and chooses for each new pass. A choice in `known`
/// is used if it is from the same GPU and cuDNN version and still works. Otherwise cuDNN's kernel is planned and
/// compiled. With AttentionKernels::measured it is then timed against our own. Passes that `work` did not
/// queue use our own kernels, also with AttentionKernels::cudnn. Blocks.
[[nodiscard]] MeasuredAttention measure_attention(runtime::StreamView stream, const std::function<void()>& work,
                                                  const AttentionChoices& known = {});

/// Uses the choices of another rank's measure_attention() on the stream's GPU. Returns false and changes nothing if
/// this cuDNN cannot run one of the passes.
[[nodiscard]] bool adopt_attention(runtime::StreamView stream, const AttentionChoices& choices);

/// Uses our own kernels for all passes chosen so far.
void forget_attention(runtime::StreamView stream);

/// Text such as "cuDNN 9.19.0".
[[nodiscard]] std::string cudnn_text(std::size_t version);

/// Summary for users, such as "cuDNN 9.19.0 for 3 of 4 passes". Adds cuDNN's reason for the first pass without a
/// kernel, and whether bits differ between runs.
[[nodiscard]] std::string attention_description(runtime::StreamView stream);

}  // namespace ranvier::models
