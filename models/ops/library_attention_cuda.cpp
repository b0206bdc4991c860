#include "models/ops/library_attention_cuda.hpp"

#include "models/ops/attention_choice.hpp"
#include "models/ops/per_gpu_cuda.hpp"
#include "models/ops/stopwatch_cuda.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_native.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace ranvier::models {
namespace {

using cuda::SlicedAttention;
using cuda::SlicedPlan;
using runtime::DType;

constexpr double worth_a_change = 0.97;  // relative to our own kernels' time; smaller gains are noise
constexpr std::uintptr_t workspace_alignment = 256;

AttentionShape shape_of(const AttentionTask& task) {
  return {.samples = task.samples,
          .positions = task.positions,
          .heads = task.heads,
          .channels = task.channels,
          .fast_backward = task.pass == AttentionPass::fast_backward,
          .key_heads = task.key_heads,
          .causal = task.causal,
          .window = task.window};
}

/// A window of at least `positions` equals no window.
AttentionTask task_of(const AttentionShape& shape, DType dtype, AttentionPass pass) {
  return {.samples = shape.samples,
          .positions = shape.positions,
          .heads = shape.heads,
          .channels = shape.channels,
          .dtype = dtype,
          .pass = pass,
          .key_heads = shape.stored_key_heads(),
          .causal = shape.causal,
          .window = shape.window < shape.positions ? shape.window : 0};
}

/// State of one GPU.
struct Library {
  std::map<AttentionTask, std::unique_ptr<SlicedAttention>> passes;  ///< null: our own kernels
  std::map<AttentionTask, bool> remembered;                          ///< by the library; while measuring
  std::string first_obstacle;
  bool measures = false;
};

/// Unbinds the library's handle at the end of its lifetime, because the stream may be destroyed before the next use.
class StreamLoan {
 public:
  explicit StreamLoan(runtime::StreamView stream) : stream_(stream) {}
  ~StreamLoan() { cuda::unbind_cudnn(stream_); }
  StreamLoan(const StreamLoan&) = delete;
  StreamLoan& operator=(const StreamLoan&) = delete;

 private:
  runtime::StreamView stream_;
};

const void* moved(const void* array, std::size_t bytes) {
  return array == nullptr ? nullptr : static_cast<const std::byte*>(array) + bytes;
}
void* moved(void* array, std::size_t bytes) {
  return const_cast<void*>(moved(static_cast<const void*>(array), bytes));
}

/// Arrays starting at a sample and key head.
cuda::CudnnAttentionArrays arrays_of(const AttentionArrays& x, const AttentionShape& shape, runtime::DType dtype,
                                     const SlicedAttention::Step& first) {
  const auto T = static_cast<std::size_t>(shape.positions), H = static_cast<std::size_t>(shape.heads),
             K = static_cast<std::size_t>(shape.stored_key_heads());
  const auto sample = static_cast<std::size_t>(first.sample), key_head = static_cast<std::size_t>(first.key_head);
  const std::size_t of_head = static_cast<std::size_t>(shape.channels) * size_of(dtype);
  const std::size_t head = key_head * (H / K), row = sample * T;
  const std::size_t q = (row * (H + 2 * K) + head) * of_head, k = (row * (H + 2 * K) + H + key_head) * of_head,
                    v = k + K * of_head, out = (row * H + head) * of_head;
  return {.q = moved(x.qkv, q),
          .k = moved(x.qkv, k),
          .v = moved(x.qkv, v),
          .out = moved(x.out, out),
          .logsumexp = x.logsumexp + (sample * H + head) * T,
          .d_out = moved(x.d_out, out),
          .d_q = moved(x.d_qkv, q),
          .d_k = moved(x.d_qkv, k),
          .d_v = moved(x.d_qkv, v),
          .workspace = x.workspace};
}

bool has_aligned_arrays(const AttentionArrays& x) {
  const void* const all[] = {x.qkv, x.out, x.logsumexp, x.d_out, x.d_qkv};
  return std::all_of(std::begin(all), std::end(all), [](const void* array) {
    return reinterpret_cast<std::uintptr_t>(array) % cuda::cudnn_array_alignment == 0;
  });
}

/// Workspace available to a plan, after alignment. A forward pass is used with either backward pass.
std::size_t plan_workspace_bytes(const AttentionTask& task) {
  AttentionShape shape = shape_of(task);
  std::size_t bytes = library_attention_workspace_bytes(shape, task.dtype);
  if (task.pass == AttentionPass::forward) {
    shape.fast_backward = true;
    bytes = std::min(bytes, library_attention_workspace_bytes(shape, task.dtype));
  }
  return bytes - workspace_alignment;
}

std::byte* aligned(std::byte* workspace) {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace);
  return workspace + (workspace_alignment - address % workspace_alignment) % workspace_alignment;
}

SlicedPlan plan(runtime::StreamView stream, const AttentionTask& task) {
  cuda::bind_cudnn(stream);
  return cuda::plan_sliced_attention(stream, shape_of(task), task.dtype, task.pass, plan_workspace_bytes(task));
}

/// Returns null for our own kernels.
std::unique_ptr<SlicedAttention> choose(runtime::StreamView stream, Library& library, const AttentionTask& task,
                                        AttentionKernels kernels, const AttentionArrays& arrays,
                                        const std::function<void()>& own) {
  const auto remembered = library.remembered.find(task);
  const bool is_remembered = remembered != library.remembered.end();
  if (is_remembered && !remembered->second) return nullptr;
  SlicedPlan planned = plan(stream, task);
  if (library.first_obstacle.empty()) library.first_obstacle = planned.obstacle;
  if (planned.attention == nullptr || is_remembered || kernels == AttentionKernels::cudnn)
    return std::move(planned.attention);
  const cudaStream_t queue = runtime::cuda::native(stream);
  cuda::Stopwatch stopwatch(queue);
  const double seconds_of_own = stopwatch.seconds_of(own);
  try {
    const double seconds = stopwatch.seconds_of([&] { planned.attention->run(stream, arrays); });
    return seconds < worth_a_change * seconds_of_own ? std::move(planned.attention) : nullptr;
  } catch (const Error& error) {
    cuda::expect_working_gpu(queue);
    if (library.first_obstacle.empty()) library.first_obstacle = error.what();
    return nullptr;
  }
}

}  // namespace

namespace cuda {

void SlicedAttention::run(runtime::StreamView stream, const AttentionArrays& arrays) const {
  for (const Step& step : steps_) plans_[step.plan]->run(stream, arrays_of(arrays, shape_, dtype_, step));
}

SlicedPlan plan_sliced_attention(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype,
                                 AttentionPass pass, std::size_t workspace_bytes) {
  const int key_heads = shape.stored_key_heads(), sharing = shape.heads / key_heads;
  const AttentionSlice most = pass == AttentionPass::forward
                                  ? AttentionSlice{shape.samples, key_heads}
                                  : library_attention_slice(shape, dtype, workspace_bytes);
  if (most.samples == 0 || most.key_heads == 0)
    return {.attention = nullptr, .obstacle = "one head of keys needs more workspace than is planned"};
  const bool of_heads = most.key_heads < key_heads;
  const int all = of_heads ? key_heads : shape.samples, largest = of_heads ? most.key_heads : most.samples;
  const int count = runtime::ceil_divide(all, largest);
  const std::size_t rows_of_one =
      static_cast<std::size_t>(of_heads ? sharing : shape.heads) * static_cast<std::size_t>(shape.positions);
  if (count > 1 && rows_of_one * sizeof(float) % cudnn_array_alignment != 0)
    return {.attention = nullptr, .obstacle = "a slice of samples or heads is not aligned"};
  std::vector<std::unique_ptr<CudnnAttention>> plans;
  std::vector<SlicedAttention::Step> steps;
  for (int i = 0, first = 0, planned = 0; i < count; ++i) {
    const int size = all / count + (i < all % count ? 1 : 0);
    if (size != planned) {
      AttentionShape slice = shape;
      slice.samples = of_heads ? 1 : size;
      slice.key_heads = of_heads ? size : key_heads;
      slice.heads = slice.key_heads * sharing;
      CudnnPlan plan = plan_cudnn_attention(stream, slice, {shape.heads, key_heads}, dtype, pass, workspace_bytes);
      if (plan.attention == nullptr) return {.attention = nullptr, .obstacle = std::move(plan.obstacle)};
      plans.push_back(std::move(plan.attention));
      planned = size;
    }
    if (of_heads) {
      for (int sample = 0; sample < shape.samples; ++sample) steps.push_back({plans.size() - 1, sample, first});
    } else {
      steps.push_back({plans.size() - 1, first, 0});
    }
    first += size;
  }
  return {.attention = std::make_unique<SlicedAttention>(shape, dtype, std::move(plans), std::move(steps)),
          .obstacle = {}};
}

}  // namespace cuda

bool cuda::library_attention(runtime::StreamView stream, AttentionPass pass, const AttentionShape& shape,
                             DType dtype, const AttentionArrays& given, const std::function<void()>& own) {
  if (!library_attention_suits(shape, dtype) || given.dropout.rate != 0 || given.bounds.any() ||
      !has_aligned_arrays(given))
    return false;
  const auto library = cuda::gpus<Library>().hold(stream);
  const AttentionTask task = task_of(shape, dtype, pass);
  AttentionArrays arrays = given;
  arrays.workspace = aligned(given.workspace);
  auto known = library->passes.find(task);
  if (known == library->passes.end()) {
    if (!library->measures) return false;
    known = library->passes.emplace(task, choose(stream, *library, task, shape.kernels, arrays, own)).first;
  }
  if (known->second == nullptr) return false;
  cuda::bind_cudnn(stream);
  known->second->run(stream, arrays);
  return true;
}

bool attention_library_built() { return cuda::built_with_cudnn(); }

std::string attention_library_obstacle() { return cuda::cudnn_obstacle(); }

AttentionLibrary attention_library(runtime::StreamView stream) {
  return {runtime::cuda::properties(stream.device()).name, cuda::cudnn_version()};
}

MeasuredAttention measure_attention(runtime::StreamView stream, const std::function<void()>& work,
                                    const AttentionChoices& known) {
  const auto library = cuda::gpus<Library>().hold(stream);
  MeasuredAttention result{.choices = {attention_library(stream), {}}};
  library->remembered.clear();
  if (known.of == result.choices.of) {
    for (const AttentionChoice& choice : known.choices) library->remembered.emplace(choice.task, choice.by_library);
  }
  {
    const StreamLoan loan(stream);
    const cuda::Measuring measuring(library->measures);
    work();
    stream.synchronize();
  }
  for (const auto& [task, attention] : library->passes) {
    const bool by_library = attention != nullptr;
    result.choices.choices.push_back({task, by_library});
    const auto remembered = library->remembered.find(task);
    if (remembered != library->remembered.end() && remembered->second == by_library) ++result.remembered;
  }
  return result;
}

bool adopt_attention(runtime::StreamView stream, const AttentionChoices& choices) {
  const auto library = cuda::gpus<Library>().hold(stream);
  const StreamLoan loan(stream);
  std::map<AttentionTask, SlicedPlan> planned;
  for (const auto& [task, by_library] : choices.choices) {
    if (!by_library) continue;
    if (choices.of.version != cuda::cudnn_version()) return false;
    const auto known = library->passes.find(task);
    if (known != library->passes.end() && known->second != nullptr) continue;
    SlicedPlan& here = planned[task] = plan(stream, task);
    if (here.attention == nullptr) {
      library->first_obstacle = here.obstacle;
      return false;
    }
  }
  std::map<AttentionTask, std::unique_ptr<SlicedAttention>> passes;
  for (const auto& [task, by_library] : choices.choices) {
    std::unique_ptr<SlicedAttention>& here = passes[task];
    if (!by_library) continue;
    const auto is_new = planned.find(task);
    here = std::move(is_new != planned.end() ? is_new->second.attention : library->passes[task]);
  }
  library->passes = std::move(passes);
  return true;
}

void forget_attention(runtime::StreamView stream) { cuda::gpus<Library>().hold(stream)->passes.clear(); }

std::string cudnn_text(std::size_t version) {
  return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string attention_description(runtime::StreamView stream) {
  const auto library = cuda::gpus<Library>().hold(stream);
  const auto by_library = std::count_if(library->passes.begin(), library->passes.end(),
                                        [](const auto& pass) { return pass.second != nullptr; });
  std::string text =
      fmt::format("{} for {} of {} passes", cudnn_text(cuda::cudnn_version()), by_library, library->passes.size());
  if (!library->first_obstacle.empty()) text += fmt::format(" ({})", library->first_obstacle);
  const bool differs = std::any_of(library->passes.begin(), library->passes.end(), [](const auto& pass) {
    return pass.second != nullptr && pass.first.pass == AttentionPass::fast_backward;
  });
  if (differs) text += "; its backward pass adds as parts come, so bits differ from run to run";
  return text;
}

}  // namespace ranvier::models
