// What a layer says of its parameters, as data. A unit is what is stored, reduced, sharded and moved as one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

struct Initializer {
  enum class Kind { zeros, ones, normal, uniform };
  Kind kind = Kind::zeros;
  float scale = 0;  ///< normal: standard deviation; uniform: half the width around zero

  bool operator==(const Initializer&) const = default;
};

/// Where a parameter that is some rows and columns of a matrix in weights files begins.
struct Tile {
  std::vector<std::size_t> tensor_shape;  ///< rows and columns of the whole
  std::size_t first_row = 0;
  std::size_t first_column = 0;

  bool operator==(const Tile&) const = default;
};

struct ParameterSpec {
  std::string name;                ///< of the tensor in weights files: "h.0.attn.c_attn.weight"
  std::vector<std::size_t> shape;  ///< of the tensor, or of the tile of it
  Initializer initializer;
  bool decays = false;              ///< whether weight decay touches it
  std::size_t stored_elements = 0;  ///< at least the shape's; the rest stays zero. 0: just the shape's
  std::optional<Tile> tile;         ///< none: the whole tensor. Tiles of one tensor have its name
  std::size_t undecayed_end = 0;    ///< elements at the end that weight decay does not touch

  [[nodiscard]] std::size_t elements() const;  ///< product of the shape
  [[nodiscard]] const std::vector<std::size_t>& tensor_shape() const { return tile ? tile->tensor_shape : shape; }
  bool operator==(const ParameterSpec&) const = default;
};

/// Parameters that are stored, reduced, sharded and moved together, flattened one after another. Layers that
/// declare a unit of the same name share it (GPT-2's tied embedding).
struct UnitSpec {
  static constexpr std::size_t alignment = 32;  ///< every parameter starts at a multiple of so many elements

  std::string name;  ///< "wte", "h.3"
  std::vector<ParameterSpec> parameters;
  bool trained = true;  ///< false: frozen, so there are no gradients of it anywhere
  /// Not 0: the elements are moving averages. What layers write as gradients is then each microbatch's share of the
  /// batch's mean of what is averaged, without the loss scale, and a step is p = (1 - averaged) · p + averaged · Σ.
  /// It has neither a learning rate nor weight decay, and no part in the gradients' norm.
  float averaged = 0;

  [[nodiscard]] std::size_t offset(std::size_t parameter) const;  ///< in elements
  [[nodiscard]] std::size_t elements() const;                     ///< with the gaps
  bool operator==(const UnitSpec&) const = default;
};

}  // namespace ranvier::models
