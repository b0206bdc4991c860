#include "tests/models/reference_resnet.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace ranvier::models {

namespace {

class ResnetLoss : ReferenceResnet {
 public:
  explicit ResnetLoss(const ReferenceResnet& reference) : ReferenceResnet(reference) {}

  using ReferenceResnet::statistics;
  double loss(const ReferenceSamples& samples, std::vector<std::vector<double>>* activations) const {
    const auto keep = [&](const Images& images) {
      if (activations != nullptr) activations->push_back(images.values);
    };
    Images x = pixels(samples);
    x = norm(convolution(x, "conv1", options_.small_images() ? 3 : 7, options_.small_images() ? 1 : 2), "bn1");
    x = relu(x);
    if (!options_.small_images()) x = max_pool(x);
    keep(x);
    for (std::size_t row = 0; row < options_.blocks.size(); ++row)
      for (int block = 0; block < options_.blocks[row]; ++block) {
        x = bottleneck(x, "layer" + std::to_string(row + 1) + "." + std::to_string(block),
                       row > 0 && block == 0 ? 2 : 1);
        keep(x);
      }
    return head(x, samples);
  }

 private:
  /// [samples, size, size, channels]
  struct Images {
    std::size_t samples, size, channels;
    std::vector<double> values;

    Images(std::size_t b, std::size_t s, std::size_t c) : samples(b), size(s), channels(c), values(b * s * s * c) {}
    double& at(std::size_t b, std::size_t h, std::size_t w, std::size_t c) {
      return values[((b * size + h) * size + w) * channels + c];
    }
    double at(std::size_t b, std::size_t h, std::size_t w, std::size_t c) const {
      return values[((b * size + h) * size + w) * channels + c];
    }
    [[nodiscard]] bool inside(std::ptrdiff_t h, std::ptrdiff_t w) const {
      const auto end = static_cast<std::ptrdiff_t>(size);
      return h >= 0 && w >= 0 && h < end && w < end;
    }
  };

  Images pixels(const ReferenceSamples& samples) const {
    constexpr std::array mean{0.485, 0.456, 0.406}, deviation{0.229, 0.224, 0.225};
    Images images(static_cast<std::size_t>(samples.samples), static_cast<std::size_t>(options_.image_size), 3);
    const auto* byte = reinterpret_cast<const std::uint8_t*>(samples.tokens.data());
    for (std::size_t b = 0; b < images.samples; ++b)
      for (std::size_t c = 0; c < 3; ++c)
        for (std::size_t h = 0; h < images.size; ++h)
          for (std::size_t w = 0; w < images.size; ++w)
            images.at(b, h, w, c) = (*byte++ / 255.0 - mean[c]) / deviation[c];
    return images;
  }

  /// Calls f(b, p, q, h, w, i, j) for each pixel that is inside each patch of a square image.
  template <typename F>
  static void for_patches(const Images& x, std::size_t kernel, std::size_t stride, std::size_t out, const F& f) {
    const auto pad = static_cast<std::ptrdiff_t>(kernel / 2);
    for (std::size_t b = 0; b < x.samples; ++b)
      for (std::size_t p = 0; p < out; ++p)
        for (std::size_t q = 0; q < out; ++q)
          for (std::size_t i = 0; i < kernel; ++i)
            for (std::size_t j = 0; j < kernel; ++j) {
              const auto h = static_cast<std::ptrdiff_t>(p * stride + i) - pad;
              const auto w = static_cast<std::ptrdiff_t>(q * stride + j) - pad;
              if (x.inside(h, w)) f(b, p, q, static_cast<std::size_t>(h), static_cast<std::size_t>(w), i, j);
            }
  }

  static std::size_t size_after(const Images& x, std::size_t stride) { return (x.size + stride - 1) / stride; }

  Images convolution(const Images& x, const std::string& name, std::size_t kernel, std::size_t stride) const {
    const std::vector<double>& weight = parameters_.at(name + ".weight");
    const std::size_t channels = weight.size() / (x.channels * kernel * kernel);
    const std::size_t patch = kernel * kernel;
    std::vector<double> turned(weight.size());  // [kernel, kernel, channels of x, channels of y]
    for (std::size_t o = 0; o < channels; ++o)
      for (std::size_t c = 0; c < x.channels; ++c)
        for (std::size_t at = 0; at < patch; ++at)
          turned[(at * x.channels + c) * channels + o] = weight[(o * x.channels + c) * patch + at];
    Images y(x.samples, size_after(x, stride), channels);
    for_patches(x, kernel, stride, y.size,
                [&](std::size_t b, std::size_t p, std::size_t q, std::size_t h, std::size_t w, std::size_t i,
                    std::size_t j) {
                  double* out = &y.at(b, p, q, 0);
                  for (std::size_t c = 0; c < x.channels; ++c) {
                    const double value = x.at(b, h, w, c);
                    const double* row = &turned[((i * kernel + j) * x.channels + c) * channels];
                    for (std::size_t o = 0; o < channels; ++o) out[o] += value * row[o];
                  }
                });
    return y;
  }

  Images norm(const Images& x, const std::string& name) const {
    const auto rows = static_cast<double>(x.values.size() / x.channels);
    std::vector<double> mean(x.channels), variance(x.channels);
    for (std::size_t i = 0; i < x.values.size(); ++i) mean[i % x.channels] += x.values[i] / rows;
    for (std::size_t i = 0; i < x.values.size(); ++i)
      variance[i % x.channels] += std::pow(x.values[i] - mean[i % x.channels], 2) / rows;
    statistics_[name + ".running_mean"] = mean;
    statistics_[name + ".running_var"] = variance;
    for (double& value : statistics_[name + ".running_var"]) value *= rows / (rows - 1);
    if (fixed_) {
      mean = parameters_.at(name + ".running_mean");
      variance = parameters_.at(name + ".running_var");
    }
    const std::vector<double>&weight = parameters_.at(name + ".weight"), &bias = parameters_.at(name + ".bias");
    Images y = x;
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      const std::size_t c = i % x.channels;
      y.values[i] = (x.values[i] - mean[c]) / std::sqrt(variance[c] + 1e-5) * weight[c] + bias[c];
    }
    return y;
  }

  static Images relu(Images x) {
    for (double& value : x.values) value = std::max(value, 0.0);
    return x;
  }

  static Images max_pool(const Images& x) {
    Images y(x.samples, size_after(x, 2), x.channels);
    std::fill(y.values.begin(), y.values.end(), -std::numeric_limits<double>::infinity());
    for_patches(
        x, 3, 2, y.size,
        [&](std::size_t b, std::size_t p, std::size_t q, std::size_t h, std::size_t w, std::size_t, std::size_t) {
          for (std::size_t c = 0; c < x.channels; ++c)
            y.at(b, p, q, c) = std::max(y.at(b, p, q, c), x.at(b, h, w, c));
        });
    return y;
  }

  Images bottleneck(const Images& x, const std::string& name, std::size_t stride) const {
    Images y = relu(norm(convolution(x, name + ".conv1", 1, 1), name + ".bn1"));
    y = relu(norm(convolution(y, name + ".conv2", 3, stride), name + ".bn2"));
    y = norm(convolution(y, name + ".conv3", 1, 1), name + ".bn3");
    const bool projects = parameters_.contains(name + ".downsample.0.weight");
    const Images past =
        projects ? norm(convolution(x, name + ".downsample.0", 1, stride), name + ".downsample.1") : x;
    for (std::size_t i = 0; i < y.values.size(); ++i) y.values[i] += past.values[i];
    return relu(std::move(y));
  }

  double head(const Images& x, const ReferenceSamples& samples) const {
    const std::vector<double>&weight = parameters_.at("fc.weight"), &bias = parameters_.at("fc.bias");
    const std::size_t pixels = x.size * x.size;
    double loss = 0;
    for (std::size_t b = 0; b < x.samples; ++b) {
      std::vector<double> logits = bias;
      for (std::size_t v = 0; v < bias.size(); ++v)
        for (std::size_t i = 0; i < pixels * x.channels; ++i)
          logits[v] += x.values[b * pixels * x.channels + i] / static_cast<double>(pixels) *
                       weight[v * x.channels + i % x.channels];
      double sum = 0;
      for (const double logit : logits) sum += std::exp(logit);
      loss += std::log(sum) - logits[static_cast<std::size_t>(samples.targets[b])];
    }
    return loss;
  }
};

}  // namespace

double ReferenceResnet::loss(const ReferenceSamples& samples, std::vector<std::vector<double>>* activations) const {
  const ResnetLoss reference(*this);
  const double loss = reference.loss(samples, activations);
  statistics_ = reference.statistics();
  return loss;
}

}  // namespace ranvier::models
