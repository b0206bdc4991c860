// Choices of products as text, and the file that remembers them from run to run: a training that is gone on with
// keeps its bits, and does not measure again. One file takes the choices of any number of GPUs and versions of
// cuBLASLt, each of which uses its own only. JSON, a product a line:
//
//   {"ranvier_products": 1, "measured": [
//   {"gpu": "NVIDIA H200", "cublas_lt": 130200, "checksum": "84b1f6a07a3e0c55", "products": [
//   {"m": 1024, "n": 3072, "k": 768, …, "epilogue": "gelu", "alignments": [64, 64, 64, 64, 64], "algorithm":
//   "2a00…"}, …
//
// `algorithm` is the library's own, in hexadecimal; null: not by the library, or its epilogue's work apart. Any
// thread, but for choose_products().
#pragma once

#include "models/ops/product_choice.hpp"

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

[[nodiscard]] std::string to_json(std::span<const ProductChoices> choices);

/// What to_json wrote. Throws ErrorCode::data that begins with `source` and says what differs from the form above,
/// or that the checksum does not fit.
[[nodiscard]] std::vector<ProductChoices> parse_product_choices(std::string_view json, const std::string& source);

class ProductChoiceFile {
 public:
  /// Reads `path`, or makes sure that it can be written where nothing is yet. Throws ErrorCode::io where neither is
  /// possible, ErrorCode::data for what is no such file; messages name `flag`, and the file stays as it is.
  ProductChoiceFile(std::filesystem::path path, std::string flag);

  /// Empty if there are none.
  [[nodiscard]] ProductChoices choices_of(const ProductLibrary& library) const;

  /// Whom it has choices of.
  [[nodiscard]] std::vector<ProductLibrary> libraries() const;

  /// Adds what is new, puts it in the place of what was chosen otherwise, and writes the file, whole or not at all,
  /// if it differs then. Throws ErrorCode::io.
  void remember(const ProductChoices& choices);

 private:
  [[nodiscard]] bool is_there() const;
  void read();

  std::filesystem::path path_;
  std::string flag_;
  std::vector<ProductChoices> all_;
};

struct ChosenProducts {
  ProductChoices choices;
  std::size_t remembered = 0;  ///< of these, not measured
  std::vector<ProductLibrary>
      instead;  ///< whom the file had choices of, where it had none of this GPU and cuBLASLt
};

/// measure_products(), after choices that the file at `path` has for this GPU and cuBLASLt were adopted; what is
/// measured is added there. Defined where with_cuda is true. Loop thread only.
[[nodiscard]] ChosenProducts choose_products(runtime::StreamView stream, const std::filesystem::path& path,
                                             const std::string& flag, const std::function<void()>& work);

}  // namespace ranvier::models
