#include "models/ops/library_attention_cuda.hpp"

#include "models/ops/attention_choice.hpp"
#include "models/ops/per_gpu_cuda.hpp"
#include "models/ops/stopwatch_cuda.hpp"
#include "runtime/cuda_native.hpp"
#include "runtime/error.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>

namespace ranvier::models {
namespace {

using cuda::AttentionPass;
using cuda::CudnnAttention;
using cuda::CudnnAttentionArrays;
using cuda::CudnnPlan;
using runtime::DType;

constexpr double worth_a_change = 0.97;         // of the time of our own kernels; less is noise
constexpr std::uintptr_t array_alignment = 16;  // that cuDNN asks of arrays
constexpr std::uintptr_t workspace_alignment = 256;

/// All that a kernel depends on.
struct Pass {
  int samples, positions, heads, channels;
  DType dtype;
  AttentionPass pass;

  auto operator<=>(const Pass&) const = default;

  [[nodiscard]] AttentionShape shape() const { return {samples, positions, heads, channels}; }
};
static_assert(std::is_trivially_copyable_v<Pass>);

/// Of one GPU.
struct Library {
  std::map<Pass, std::unique_ptr<CudnnAttention>> passes;  ///< null: our own kernels
  std::string first_obstacle;
  bool measures = false;
};

bool has_aligned_arrays(const CudnnAttentionArrays& x) {
  const void* const all[] = {x.qkv, x.out, x.logsumexp, x.d_out, x.d_qkv};
  return std::all_of(std::begin(all), std::end(all), [](const void* array) {
    return reinterpret_cast<std::uintptr_t>(array) % array_alignment == 0;
  });
}

/// What a plan may take: the rest of the workspace lies before its first aligned byte.
std::size_t plan_workspace_bytes(const Pass& pass) {
  return library_attention_workspace_bytes(pass.shape(), pass.dtype) - workspace_alignment;
}

std::byte* aligned(std::byte* workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace);
  return workspace + (workspace_alignment - address % workspace_alignment) % workspace_alignment;
}

/// Those of `plan`, if it has one and it is worth it.
std::unique_ptr<CudnnAttention> chosen(runtime::StreamView stream, CudnnPlan plan, AttentionKernels kernels,
                                       const CudnnAttentionArrays& arrays, const std::function<void()>& own) {
  if (plan.attention == nullptr || kernels == AttentionKernels::cudnn) return std::move(plan.attention);
  cuda::Stopwatch stopwatch(runtime::cuda::native(stream));
  const double seconds_of_own = stopwatch.seconds_of(own);
  const double seconds = stopwatch.seconds_of([&] { plan.attention->run(stream, arrays); });
  return seconds < worth_a_change * seconds_of_own ? std::move(plan.attention) : nullptr;
}

/// One pass's choice, as it goes from rank to rank.
struct Choice {
  Pass pass;
  bool by_library;
};
static_assert(std::is_trivially_copyable_v<Choice>);

template <typename Value>
void append(std::vector<std::byte>& bytes, const Value& value) {
  const auto* const from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof(value));
}

}  // namespace

bool cuda::library_attention(runtime::StreamView stream, AttentionPass pass, const AttentionShape& shape, DType dtype,
                             const Dropout& dropout, const CudnnAttentionArrays& given,
                             const std::function<void()>& own) {
  if (!library_attention_suits(shape, dtype) || dropout.rate != 0 || !has_aligned_arrays(given)) return false;
  const auto library = cuda::gpus<Library>().hold(stream);
  const Pass key{shape.samples, shape.positions, shape.heads, shape.channels, dtype, pass};
  CudnnAttentionArrays arrays = given;
  arrays.workspace = aligned(given.workspace);
  auto known = library->passes.find(key);
  if (known == library->passes.end()) {
    if (!library->measures) return false;
    CudnnPlan plan = plan_cudnn_attention(stream, shape, dtype, pass, plan_workspace_bytes(key));
    if (library->first_obstacle.empty()) library->first_obstacle = plan.obstacle;
    known = library->passes.emplace(key, chosen(stream, std::move(plan), shape.kernels, arrays, own)).first;
  }
  if (known->second == nullptr) return false;
  known->second->run(stream, arrays);
  return true;
}

bool attention_library_built() { return cuda::built_with_cudnn(); }

std::string attention_library_obstacle() { return cuda::cudnn_obstacle(); }

std::vector<std::byte> measure_attention(runtime::StreamView stream, const std::function<void()>& work) {
  const auto library = cuda::gpus<Library>().hold(stream);
  {
    const cuda::Measuring measuring(library->measures);
    work();
    stream.synchronize();
  }
  std::vector<std::byte> choices;
  append(choices, cuda::cudnn_version());
  for (const auto& [pass, attention] : library->passes) {
    Choice choice;
    std::memset(&choice, 0, sizeof(choice));  // its padding, too: ranks compare bytes of what they send
    choice.pass = pass;
    choice.by_library = attention != nullptr;
    append(choices, choice);
  }
  return choices;
}

bool adopt_attention(runtime::StreamView stream, std::span<const std::byte> choices) {
  std::size_t version = 0;
  expect(choices.size() >= sizeof(version) && (choices.size() - sizeof(version)) % sizeof(Choice) == 0,
         "{} bytes are no choices of attention, which have {} and {} each", choices.size(), sizeof(version),
         sizeof(Choice));
  std::memcpy(&version, choices.data(), sizeof(version));
  const auto library = cuda::gpus<Library>().hold(stream);
  std::map<Pass, std::unique_ptr<CudnnAttention>> passes;
  for (std::size_t at = sizeof(version); at < choices.size(); at += sizeof(Choice)) {
    Choice choice;
    std::memcpy(&choice, choices.data() + at, sizeof(choice));
    std::unique_ptr<CudnnAttention>& here = passes[choice.pass];
    if (!choice.by_library) continue;
    if (version != cuda::cudnn_version()) return false;
    const auto known = library->passes.find(choice.pass);
    if (known != library->passes.end() && known->second != nullptr) {
      here = std::move(known->second);
      continue;
    }
    const Pass& pass = choice.pass;
    CudnnPlan plan =
        cuda::plan_cudnn_attention(stream, pass.shape(), pass.dtype, pass.pass, plan_workspace_bytes(pass));
    if (plan.attention == nullptr) {
      library->first_obstacle = plan.obstacle;
      return false;
    }
    here = std::move(plan.attention);
  }
  library->passes = std::move(passes);
  return true;
}

void forget_attention(runtime::StreamView stream) {
  cuda::gpus<Library>().hold(stream)->passes.clear();
}

std::string attention_description(runtime::StreamView stream) {
  const auto library = cuda::gpus<Library>().hold(stream);
  const auto by_library = std::count_if(library->passes.begin(), library->passes.end(),
                                        [](const auto& pass) { return pass.second != nullptr; });
  const std::size_t version = cuda::cudnn_version();
  std::string text = fmt::format("cuDNN {}.{}.{} for {} of {} passes", version / 10000, version / 100 % 100,
                                 version % 100, by_library, library->passes.size());
  if (!library->first_obstacle.empty()) text += fmt::format(" ({})", library->first_obstacle);
  return text;
}

}  // namespace ranvier::models
