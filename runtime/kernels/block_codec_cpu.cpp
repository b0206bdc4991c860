#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/work_cost.hpp"
#include "runtime/host/compute_pool.hpp"
#include "runtime/kernels/block_codec.hpp"
#include "runtime/kernels/elementwise_cpu.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

namespace ranvier::runtime {
namespace {

using CodeBlock = std::array<float, code_block_elements>;

void check_coded(const char* kernel, const void* array, DType dtype, std::size_t n, const StridedLayout& runs) {
  expect(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16, "{} does not take {}", kernel,
         to_string(dtype));
  expect(n % code_block_elements == 0 && runs.first % code_block_elements == 0 &&
             (runs.contiguous() || (runs.run % code_block_elements == 0 && runs.stride % code_block_elements == 0)),
         "{} of {} elements in runs of {}, stride {}, starting at {}: not in blocks of {}", kernel, n, runs.run,
         runs.stride, runs.first, code_block_elements);
  expect(reinterpret_cast<std::uintptr_t>(array) % 16 == 0, "{} of an array that is not aligned to 16 bytes",
         kernel);
}

/// Cost of kernels that read or write numbers and encoded arrays.
WorkCost codec_cost(BlockCode code, DType dtype, std::size_t n, std::size_t accesses, std::size_t encoded) {
  return elementwise_cost(accesses * n * size_of(dtype) + encoded * coded_bytes(code, n), dtype);
}

/// Launches body(first block, last block) for parts of n / 256 blocks, on the pool's threads if it is worth it.
template <typename Body>
void launch_blocks(StreamView stream, const WorkCost& cost, std::size_t n, Body body) {
  constexpr std::size_t blocks_worth_waking = 128;
  stream.launch(cost, [blocks = n / code_block_elements, body = std::move(body)](ComputePool& pool) {
    if (blocks < blocks_worth_waking) return body(0, blocks);
    pool.run([&](int thread, int threads) {
      const Share share = share_of(blocks, thread, threads, 1);
      if (share.begin != share.end) body(share.begin, share.end);
    });
  });
}

void encode_block(BlockCode code, std::byte* to, const CodeBlock& from) {
  std::uint32_t largest = 0;
  for (const float value : from) largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffu);
  const float scale = block_scale(code, largest);
  std::memcpy(to, &scale, sizeof scale);
  auto* const bytes = reinterpret_cast<std::uint8_t*>(to + sizeof scale);
  if (!(scale > 0)) return std::fill_n(bytes, code_block_bytes(code) - sizeof scale, std::uint8_t{0}), void();
  const float factor = 1.0f / scale;
  std::array<std::uint32_t, code_block_elements> rounded;
  for (std::size_t i = 0; i < code_block_elements; ++i)
    rounded[i] = std::bit_cast<std::uint32_t>(std::fma(from[i], factor, block_rounding));
  if (code == BlockCode::int8) {
    for (std::size_t i = 0; i < code_block_elements; ++i) bytes[i] = static_cast<std::uint8_t>(rounded[i]);
    return;
  }
  constexpr std::size_t half = code_block_elements / 2;
  for (std::size_t i = 0; i < half; ++i)
    bytes[i] = static_cast<std::uint8_t>((rounded[i] & 15u) | rounded[i + half] << 4);
}

void decode_block(BlockCode code, CodeBlock& to, const std::byte* from) {
  float scale = 0;
  std::memcpy(&scale, from, sizeof scale);
  const auto* const bytes = reinterpret_cast<const std::int8_t*>(from + sizeof scale);
  if (code == BlockCode::int8) {
    for (std::size_t i = 0; i < code_block_elements; ++i) to[i] = static_cast<float>(bytes[i]) * scale;
    return;
  }
  constexpr std::size_t half = code_block_elements / 2;
  for (std::size_t i = 0; i < half; ++i) {
    to[i] = static_cast<float>(static_cast<std::int8_t>(bytes[i] << 4) >> 4) * scale;
    to[i + half] = static_cast<float>(bytes[i] >> 4) * scale;
  }
}

}  // namespace

void encode_blocks(StreamView stream, BlockCode code, void* to, const void* from, DType dtype, std::size_t n,
                   const StridedLayout& from_runs) {
  check_coded("encode_blocks", from, dtype, n, from_runs);
  if (n == 0) return;
  if (ran_on_gpu<encode_blocks_cuda>(stream, code, to, from, dtype, n, from_runs)) return;
  launch_blocks(stream, codec_cost(code, dtype, n, 1, 1), n, [=](std::size_t begin, std::size_t end) {
    with_float_type(dtype, [&]<typename T>(T) {
      CodeBlock values;
      for (std::size_t block = begin; block < end; ++block) {
        cpu::to_floats(values.data(), static_cast<const T*>(from) + from_runs.at(block * code_block_elements),
                       code_block_elements);
        encode_block(code, static_cast<std::byte*>(to) + block * code_block_bytes(code), values);
      }
    });
  });
}

void decode_blocks(StreamView stream, BlockCode code, void* to, DType dtype, const void* from, std::size_t n,
                   const StridedLayout& to_runs) {
  check_coded("decode_blocks", to, dtype, n, to_runs);
  if (n == 0) return;
  if (ran_on_gpu<decode_blocks_cuda>(stream, code, to, dtype, from, n, to_runs)) return;
  launch_blocks(stream, codec_cost(code, dtype, n, 1, 1), n, [=](std::size_t begin, std::size_t end) {
    with_float_type(dtype, [&]<typename T>(T) {
      CodeBlock values;
      for (std::size_t block = begin; block < end; ++block) {
        decode_block(code, values, static_cast<const std::byte*>(from) + block * code_block_bytes(code));
        cpu::from_floats(static_cast<T*>(to) + to_runs.at(block * code_block_elements), values.data(),
                         code_block_elements);
      }
    });
  });
}

void round_to_blocks(StreamView stream, BlockCode code, void* to, DType dtype, std::size_t n,
                     const StridedLayout& to_runs) {
  check_coded("round_to_blocks", to, dtype, n, to_runs);
  if (n == 0) return;
  if (ran_on_gpu<round_to_blocks_cuda>(stream, code, to, dtype, n, to_runs)) return;
  launch_blocks(stream, codec_cost(code, dtype, n, 2, 0), n, [=](std::size_t begin, std::size_t end) {
    with_float_type(dtype, [&]<typename T>(T) {
      CodeBlock values;
      alignas(float) std::array<std::byte, code_block_bytes(BlockCode::int8)> encoded;
      for (std::size_t block = begin; block < end; ++block) {
        T* const array = static_cast<T*>(to) + to_runs.at(block * code_block_elements);
        cpu::to_floats(values.data(), array, code_block_elements);
        encode_block(code, encoded.data(), values);
        decode_block(code, values, encoded.data());
        cpu::from_floats(array, values.data(), code_block_elements);
      }
    });
  });
}

void add_blocks(StreamView stream, BlockCode code, void* to, DType dtype, const void* from, std::size_t arrays,
                std::size_t skipped, std::size_t n, const StridedLayout& to_runs) {
  check_coded("add_blocks", to, dtype, n, to_runs);
  if (n == 0) return;
  if (ran_on_gpu<add_blocks_cuda>(stream, code, to, dtype, from, arrays, skipped, n, to_runs)) return;
  const std::size_t added = arrays - (skipped < arrays ? 1 : 0);
  launch_blocks(stream, codec_cost(code, dtype, n, 2, added), n, [=](std::size_t begin, std::size_t end) {
    with_float_type(dtype, [&]<typename T>(T) {
      CodeBlock sums, values;
      for (std::size_t block = begin; block < end; ++block) {
        T* const array = static_cast<T*>(to) + to_runs.at(block * code_block_elements);
        cpu::to_floats(sums.data(), array, code_block_elements);
        for (std::size_t a = 0; a < arrays; ++a) {
          if (a == skipped) continue;
          decode_block(
              code, values,
              static_cast<const std::byte*>(from) + coded_bytes(code, a * n + block * code_block_elements));
          for (std::size_t i = 0; i < code_block_elements; ++i) sums[i] += values[i];
        }
        cpu::from_floats(array, sums.data(), code_block_elements);
      }
    });
  });
}

}  // namespace ranvier::runtime
