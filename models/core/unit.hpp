// Parameters of a layer as data. A unit is stored, reduced, sharded and moved as one (like an FSDP unit).
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::models {

struct Initializer {
  enum class Kind { zeros, ones, normal, uniform };
  Kind kind = Kind::zeros;
  float scale = 0;  ///< normal: standard deviation; uniform: half the width around zero

  bool operator==(const Initializer&) const = default;
};

/// Start of a parameter that is a block of rows and columns of a matrix in weights files.
struct Tile {
  std::vector<std::size_t> tensor_shape;  ///< rows and columns of the complete tensor
  std::size_t first_row = 0;
  std::size_t first_column = 0;

  bool operator==(const Tile&) const = default;
};

/// Block of rows and columns of a parameter, seen as a matrix [shape[0], all other dimensions]: a convolution is
/// [out, in · k · k].
struct MatrixPart {
  std::size_t first_row = 0;
  std::size_t rows = 0;
  std::size_t first_column = 0;
  std::size_t columns = 0;

  bool operator==(const MatrixPart&) const = default;
};

struct ParameterSpec {
  std::string name;                ///< name of the tensor in weights files: "h.0.attn.c_attn.weight"
  std::vector<std::size_t> shape;  ///< shape of the tensor, or of its tile
  Initializer initializer;
  bool decays = false;  ///< whether weight decay applies
  std::size_t stored_elements =
      0;                          ///< allocated elements, at least the shape's; the rest stays zero. 0: the shape's
  std::optional<Tile> tile;       ///< none: the complete tensor. Tiles of a tensor share its name
  std::size_t undecayed_end = 0;  ///< elements at the end without weight decay
  /// Matrices that Muon orthogonalizes separately, such as queries, keys and values of a fused weight. Together they
  /// are the parameter. Empty: AdamW. Matrices of a tile are incomplete, so Muon refuses tiles with matrices.
  std::vector<MatrixPart> matrices = {};

  [[nodiscard]] std::size_t elements() const;  ///< product of the shape
  [[nodiscard]] const std::vector<std::size_t>& tensor_shape() const { return tile ? tile->tensor_shape : shape; }
  bool operator==(const ParameterSpec&) const = default;
};

/// Parameters that are stored, reduced, sharded and moved together, flattened in order. Layers that declare a unit
/// with the same name share it (GPT-2's tied embedding).
struct UnitSpec {
  static constexpr std::size_t alignment = 32;  ///< every parameter starts at a multiple of this many elements

  std::string name;  ///< "wte", "h.3"
  std::vector<ParameterSpec> parameters;
  bool trained = true;  ///< false: frozen, without gradients
  /// Not 0: the elements are moving averages. Gradients are then each microbatch's contribution to the batch mean,
  /// without loss scale, and a step is p = (1 - averaged) · p + averaged · Σ. No learning rate, no weight decay, not
  /// part of the gradient norm.
  float averaged = 0;

  [[nodiscard]] std::size_t offset(std::size_t parameter) const;  ///< in elements
  [[nodiscard]] std::size_t elements() const;                     ///< with the gaps
  bool operator==(const UnitSpec&) const = default;
};

/// Elements of the parameters of all units, or of the trained ones, without the gaps between parameters.
[[nodiscard]] std::size_t parameters_of(std::span<const UnitSpec> units, bool only_trained = false);

/// Calls f(begin, count, at) for elements [first, last) of a parameter, in order. Each run has `count` elements. It
/// starts at element `begin` of the tensor and at element `at` of the parameter.
template <typename F>
void for_each_run(const ParameterSpec& parameter, std::size_t first, std::size_t last, F&& f) {
  if (!parameter.tile) {
    if (first < last) f(first, last - first, first);
    return;
  }
  const std::size_t columns = parameter.shape.at(1), tensor_columns = parameter.tile->tensor_shape.at(1);
  for (std::size_t at = first; at < last;) {
    const std::size_t row = at / columns, column = at % columns;
    const std::size_t count = std::min(last - at, columns - column);
    f((parameter.tile->first_row + row) * tensor_columns + parameter.tile->first_column + column, count, at);
    at += count;
  }
}

/// Source of unit values: files, checkpoints, counters. Writes elements [begin, begin + out.size()) of a flattened
/// unit, gaps and padding as zeros. Any thread, unless a source restricts it.
using UnitSource = std::function<void(const UnitSpec& unit, std::size_t begin, std::span<float> out)>;

}  // namespace ranvier::models
