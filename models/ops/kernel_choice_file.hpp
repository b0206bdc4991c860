// Choices of products and of attention as text, and the file that remembers them from run to run: a training that
// is gone on with keeps its bits, and does not measure again. One file takes the choices of any number of GPUs and
// versions of cuBLASLt and cuDNN, each of which uses its own only. JSON, a choice a line:
//
//   {"ranvier_products": 2, "measured": [
//   {"gpu": "NVIDIA H200", "cublas_lt": 130200, "checksum": "84b1f6a07a3e0c55", "products": [
//   {"m": 1024, "n": 3072, "k": 768, …, "epilogue": "gelu", "alignments": [64, 64, 64, 64, 64], "algorithm":
//   "2a00…"}, …
//   ]}], "attention": [
//   {"gpu": "NVIDIA H200", "cudnn": 91900, "checksum": "0c51e87df3bb7b20", "passes": [
//   {"pass": "forward", "samples": 16, "positions": 1024, "heads": 12, "channels": 64, "dtype": "bf16", "by":
//   "cudnn"}, …
//
// `algorithm` is the library's own, in hexadecimal; null: not by the library, or its epilogue's work apart. A pass with
// fewer heads of keys, not causal or with a window also has `key_heads`, `causal` or `window`, before `by`. Form 1
// had no attention; it is read, and written as form 2 when there is something new. Any thread, but for
// choose_kernels().
#pragma once

#include "models/ops/attention_choice.hpp"
#include "models/ops/product_choice.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

/// By whom they hold for, each once.
struct KernelChoices {
  std::vector<ProductChoices> products;
  std::vector<AttentionChoices> attention;

  bool operator==(const KernelChoices&) const = default;
};

[[nodiscard]] std::string to_json(const KernelChoices& choices);

/// What to_json wrote. Throws ErrorCode::data that begins with `source` and says what differs from the form above,
/// or that the checksum does not fit.
[[nodiscard]] KernelChoices parse_kernel_choices(std::string_view json, const std::string& source);

class KernelChoiceFile {
 public:
  /// Reads `path`, or makes sure that it can be written where nothing is yet. Throws ErrorCode::io where neither is
  /// possible, ErrorCode::data for what is no such file; messages name `flag`, and the file stays as it is.
  KernelChoiceFile(std::filesystem::path path, std::string flag);

  /// Empty if there are none.
  [[nodiscard]] ProductChoices choices_of(const ProductLibrary& library) const;
  [[nodiscard]] AttentionChoices choices_of(const AttentionLibrary& library) const;

  [[nodiscard]] const KernelChoices& all() const { return all_; }

  /// Adds what is new, puts it in the place of what was chosen otherwise, and writes the file, whole or not at all,
  /// if it differs then. Throws ErrorCode::io.
  void remember(const KernelChoices& choices);

 private:
  [[nodiscard]] bool is_there() const;
  void read();

  std::filesystem::path path_;
  std::string flag_;
  KernelChoices all_;
};

struct KernelQuestion {
  bool products = true;                                ///< measured
  AttentionKernels attention = AttentionKernels::own;  ///< as the work's shapes say; own: not asked
  std::filesystem::path file = {};                     ///< empty: nothing is remembered
  std::string flag = {};                               ///< that named it
};

struct ChosenKernels {
  KernelChoices choices;                ///< of this GPU and its libraries; empty lists: nothing was asked
  std::size_t remembered_products = 0;  ///< of these, not measured
  std::size_t remembered_passes = 0;
  KernelChoices instead;  ///< what the file had of others, where it had nothing of this GPU and that library
};

/// measure_products() and measure_attention(), with what the file has for this GPU and its libraries; what is
/// measured is added there. Attention is left out where cuDNN is missing, and neither looked up nor remembered
/// where cuDNN is insisted on: then nothing was measured. Defined where with_cuda is true. Loop thread only.
[[nodiscard]] ChosenKernels choose_kernels(runtime::StreamView stream, const KernelQuestion& question,
                                           const std::function<void()>& work);

}  // namespace ranvier::models
