// Memory in complete blocks, filled from a seed, for transfers to and from a tier.
#pragma once

#include "offload/tier.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>

namespace ranvier::offload::tests {

class Blocks {
 public:
  explicit Blocks(std::size_t bytes, int value = 0)
      : bytes_(Tier::whole_blocks(bytes)),
        data_(static_cast<std::byte*>(std::aligned_alloc(Tier::block_bytes, bytes_ == 0 ? 4096 : bytes_)),
              &std::free) {
    std::fill_n(data_.get(), bytes_, static_cast<std::byte>(value));
  }

  [[nodiscard]] static Blocks random(std::size_t bytes, std::uint64_t seed) {
    Blocks blocks(bytes);
    std::mt19937_64 generator(seed);
    for (std::size_t i = 0; i < blocks.bytes_; ++i) blocks.data_[i] = static_cast<std::byte>(generator());
    return blocks;
  }

  [[nodiscard]] std::span<std::byte> span() const { return {data_.get(), bytes_}; }
  [[nodiscard]] std::span<std::byte> span(std::size_t offset, std::size_t bytes) const {
    return span().subspan(offset, bytes);
  }
  [[nodiscard]] std::byte* data() const { return data_.get(); }
  template <typename T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }
  friend bool operator==(const Blocks& left, const Blocks& right) {
    return std::equal(left.span().begin(), left.span().end(), right.span().begin(), right.span().end());
  }

 private:
  std::size_t bytes_;
  std::unique_ptr<std::byte[], void (*)(void*)> data_;
};

}  // namespace ranvier::offload::tests
