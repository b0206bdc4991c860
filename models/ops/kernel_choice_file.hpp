// Choices of kernels for matrix multiplications and attention, as JSON and in a file that keeps them between runs. A
// resumed run then has the same bits and measures nothing again. One file serves any number of GPUs and versions of
// cuBLASLt and cuDNN; each uses only its own choices. Any thread, except choose_kernels().
#pragma once

#include "models/ops/attention_choice.hpp"
#include "models/ops/product_choice.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

/// Choices by GPU and library version, each pair once.
struct KernelChoices {
  std::vector<ProductChoices> products;
  std::vector<AttentionChoices> attention;

  bool operator==(const KernelChoices&) const = default;
};

/// JSON with a line per choice. `algorithm` is the library's binary format in hexadecimal; null: not by the library, or
/// without its epilogue. Passes that need them also have "key_heads", "causal" or "window". Format 1 had no attention;
/// it is read, and replaced by format 2 with the next change.
///
///   {"ranvier_products": 2, "measured": [
///   {"gpu": "NVIDIA H200", "cublas_lt": 130200, "checksum": "84b1f6a07a3e0c55", "products": [
///   {"m": 1024, "n": 3072, "k": 768, …, "alignments": [64, 64, 64, 64, 64], "algorithm": "2a00…"}, …
///   ]}], "attention": [
///   {"gpu": "NVIDIA H200", "cudnn": 91900, "checksum": "0c51e87df3bb7b20", "passes": [
///   {"pass": "forward", "samples": 16, "positions": 1024, …, "dtype": "bf16", "by": "cudnn"}, …
[[nodiscard]] std::string to_json(const KernelChoices& choices);

/// Parses the output of to_json(). Throws ErrorCode::data, starting with `source`, on any other format or a wrong
/// checksum.
[[nodiscard]] KernelChoices parse_kernel_choices(std::string_view json, const std::string& source);

class KernelChoiceFile {
 public:
  /// Reads `path`, or checks that it can be created. Throws ErrorCode::io if neither is possible, and ErrorCode::data
  /// for any other file. Messages name `flag`; the file is not modified.
  KernelChoiceFile(std::filesystem::path path, std::string flag);

  /// Choices of this GPU and library version; empty if there are none.
  [[nodiscard]] ProductChoices choices_of(const ProductLibrary& library) const;
  [[nodiscard]] AttentionChoices choices_of(const AttentionLibrary& library) const;

  [[nodiscard]] const KernelChoices& all() const { return all_; }

  /// Adds new choices, replaces different ones, and writes the file atomically if it changed. Throws ErrorCode::io.
  void remember(const KernelChoices& choices);

 private:
  [[nodiscard]] bool is_there() const;
  void read();

  std::filesystem::path path_;
  std::string flag_;
  KernelChoices all_;
};

struct KernelQuestion {
  bool products = true;                                ///< whether matrix multiplications are measured
  AttentionKernels attention = AttentionKernels::own;  ///< as in the shapes of the work; own: not measured
  std::filesystem::path file = {};                     ///< empty: nothing is saved
  std::string flag = {};                               ///< flag that set `file`, for messages
};

struct ChosenKernels {
  KernelChoices choices;                ///< for this GPU and its libraries; empty: nothing was measured
  std::size_t remembered_products = 0;  ///< number of choices from the file
  std::size_t remembered_passes = 0;
  KernelChoices instead;  ///< choices of other GPUs or versions in the file, if it has none for this one
};

/// Calls measure_products() and measure_attention() with the file's choices for this GPU and its libraries, and saves
/// new ones. Skips attention if cuDNN is missing. Attention choices are neither read nor saved with
/// AttentionKernels::cudnn, because nothing is measured then. Defined if with_cuda is true. Loop thread only.
[[nodiscard]] ChosenKernels choose_kernels(runtime::StreamView stream, const KernelQuestion& question,
                                           const std::function<void()>& work);

}  // namespace ranvier::models
