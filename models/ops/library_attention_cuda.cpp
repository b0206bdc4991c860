#include "models/ops/library_attention_cuda.hpp"

#include "models/ops/attention_choice.hpp"
#include "models/ops/per_gpu_cuda.hpp"
#include "models/ops/stopwatch_cuda.hpp"
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

using cuda::LibraryAttentionArrays;
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

bool has_aligned_arrays(const LibraryAttentionArrays& x) {
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
                                        AttentionKernels kernels, const LibraryAttentionArrays& arrays,
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

bool cuda::library_attention(runtime::StreamView stream, AttentionPass pass, const AttentionShape& shape,
                             DType dtype, const Dropout& dropout, const LibraryAttentionArrays& given,
                             const std::function<void()>& own) {
  if (!library_attention_suits(shape, dtype) || dropout.rate != 0 || !has_aligned_arrays(given)) return false;
  const auto library = cuda::gpus<Library>().hold(stream);
  const AttentionTask task = task_of(shape, dtype, pass);
  LibraryAttentionArrays arrays = given;
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
