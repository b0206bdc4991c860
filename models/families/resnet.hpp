// Wide residual networks (He et al. 2016; Zagoruyko and Komodakis 2016) for image classification. They compute
// torchvision's wide_resnet50_2 and use its parameter names and layouts: a stem, four groups of bottleneck blocks,
// global average pooling and a linear layer. Small images (at most small_image pixels wide) use a 3 × 3 stem without
// pooling, as usual for CIFAR-10. The stem of larger images is a 7 × 7 convolution and a pool, which reduce width and
// height to a quarter. Not tiled.
#pragma once

#include "models/families/family.hpp"

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ranvier::models {

struct ResnetOptions {
  static constexpr int expansion = 4;  ///< output channels of a block / channels of its row (block group)
  static constexpr int small_image = 64;
  static constexpr std::size_t rows = 4;

  std::array<int, rows> blocks{3, 4, 6, 3};
  int channels = 64;     ///< C, channels of the stem; rows have C, 2 C, 4 C, 8 C, block outputs four times as many
  int width = 2;         ///< inner channels of a block / channels of its row
  int image_size = 224;  ///< S, width and height in pixels
  int classes = 1000;    ///< V
  Precision precision;

  bool operator==(const ResnetOptions&) const = default;
  [[nodiscard]] int layers() const noexcept { return blocks[0] + blocks[1] + blocks[2] + blocks[3] + 2; }
  [[nodiscard]] bool small_images() const noexcept { return image_size <= small_image; }

  // The family; see ModelFamily.
  static std::span<const SizeField<ResnetOptions>> sizes();
  /// "wide-resnet" with the user's sizes; "wide-resnet-50-2", "wide-resnet-101-2", "wide-resnet-3b" (MiCS).
  static std::span<const NamedSizes<ResnetOptions>> named();
  [[nodiscard]] std::string_view family() const { return "wide-resnet"; }
  [[nodiscard]] Task task() const { return Task::images; }
  [[nodiscard]] std::optional<std::string> problem(const SizeNames& names) const;
  void derive(bool, bool) {}
  [[nodiscard]] std::string computation() const { return "wide-resnet"; }
  [[nodiscard]] std::optional<AdapterModules> adapters() const { return std::nullopt; }
  static constexpr std::array<std::string_view, 1> model_types{"wide_resnet"};
  /// torchvision writes no config.json, so the keys are Ranvier's own.
  static FamilyConfig<ResnetOptions> read(const ConfigFile& config);
  [[nodiscard]] std::string config_json(const std::string& like) const;
  /// Without config.json, from the shapes of tensors with torchvision's names. Assumes images of 224 pixels, or 32 with
  /// a 3 × 3 stem. Throws ErrorCode::data for impossible shapes.
  static std::optional<ResnetOptions> stored(const Safetensors& weights, const ResnetOptions* config,
                                             std::optional<int> heads);
  /// resnet_layers.cpp
  [[nodiscard]] Architecture make(const Tuning& tuning) const;
};

/// Layers: one stem, one per block, one head. Units: "stem", "layer1.0" … "layer4.2", "fc". Stem and blocks also have
/// units of running statistics: "stem.statistics" …. Inputs are images as bytes [3, S, S] (ops/patches.hpp); targets
/// are one class per image, int32 [1]. Batch statistics are computed per microbatch; running statistics are state
/// (modules/normed_convolution.hpp). Throws ErrorCode::usage for invalid sizes.
[[nodiscard]] Architecture make_resnet(const ResnetOptions& options, const Tuning& tuning = {});

}  // namespace ranvier::models
