// cuBLASLt is column-major: a row-major c[M, N] is its cᵀ, so it computes cᵀ = bᵀ · aᵀ. Its first operand is b, its
// second a, and its rows are N. So a bias along its rows is along N, as are sums over K of its first operand.
#include "models/ops/library_matmul_cuda.hpp"

#include "models/ops/cublas_lt_cuda.hpp"
#include "models/ops/library_pieces.hpp"
#include "models/ops/per_gpu_cuda.hpp"
#include "models/ops/product_choice.hpp"
#include "models/ops/stopwatch_cuda.hpp"
#include "models/ops/stream_workspace_cuda.hpp"
#include "runtime/base/console.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_native.hpp"

#include <fmt/core.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::models {
namespace {

using cuda::check;
using cuda::cublas_lt;
using cuda::Description;
using cuda::Layout;
using cuda::Preference;
using cuda::Stopwatch;
using runtime::DType;
using Kind = Epilogue::Kind;

constexpr double worth_a_change = 0.97;  // relative to the first proposal's time; smaller gains are noise
constexpr double hopeless = 1.5;         // relative to the best time so far; slower ones are not measured further
constexpr double endless = std::numeric_limits<double>::infinity();
constexpr auto max_measuring = std::chrono::milliseconds(100);  // per multiplication, best expected ones first

/// Request for the library's proposals.
struct Search {
  int most;  ///< number of proposals
  std::size_t workspace_bytes;
  std::uint32_t reductions;  ///< permitted ways to add partial sums over K
};

/// Used without measurement. fp32 and `products` first promise the same bits in every release, so it must not change.
constexpr Search first_answer{
    .most = 1, .workspace_bytes = std::size_t{32} << 20, .reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE};

/// Used for measurement. Partial sums are added in float: in the workspace, or in the result if that is float. Both are
/// reproducible. cuBLAS' manual ("Results Reproducibility") promises the same bits on one kind of GPU; for
/// cublasLtMatmul() with the caller's workspace also next to other streams. Adding in place is sequential, by counters
/// in the workspace (cublasLt.h).
Search measured_answers(DType of_result) {
  return {.most = 32,
          .workspace_bytes = cuda::stream_workspace_bytes,
          .reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                        (of_result == DType::f32 ? std::uint32_t{CUBLASLT_REDUCTION_SCHEME_INPLACE} : 0u)};
}

cudaDataType data_type(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

/// Largest power of two that divides the address, up to the alignment of arenas and layouts. Algorithms require an
/// alignment in bytes.
std::uint32_t alignment(const void* array) {
  constexpr std::uint32_t most = 64;
  const auto address = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(array) & (most - 1));
  return address == 0 ? most : address & (0 - address);
}

/// Address with this alignment. The library only looks at the alignment before it runs.
void* some_array(std::uint32_t aligned) { return reinterpret_cast<void*>(std::uintptr_t{aligned}); }

LibraryProduct product_of(const MatmulShape& s, const MatmulArrays& x, const Epilogue& epilogue) {
  return {
      .m = s.m,
      .n = s.n,
      .k = s.k,
      .a_stride = s.a_row(),
      .b_stride = s.b_row(),
      .c_stride = s.c_row(),
      .transpose_a = s.transpose_a,
      .transpose_b = s.transpose_b,
      .dtype = x.dtype,
      .c_dtype = x.c_dtype,
      .has_bias = x.bias != nullptr,
      .accumulate = x.accumulate,
      .epilogue = epilogue.kind,
      .alignments = {alignment(x.a), alignment(x.b), alignment(x.c), alignment(x.bias), alignment(epilogue.array)}};
}

/// Documented limits of epilogues: bias and sums are read in vectors, GELU's argument has rows of a multiple of 8
/// elements, and sums need an operand that is not transposed.
bool has_epilogue(const LibraryProduct& p) {
  if (p.has_bias && p.alignments[3] < 16) return false;
  switch (p.epilogue) {
    case Kind::none:
      return true;
    case Kind::gelu:
      return p.n % 8 == 0 && p.alignments[4] >= 16 && p.c_dtype == p.dtype && !p.accumulate && p.c_stride == p.n;
    case Kind::gelu_backward:
      return p.n % 8 == 0 && p.alignments[4] >= 16 && p.c_dtype == p.dtype && !p.accumulate && p.c_stride == p.n &&
             !p.has_bias;
    case Kind::column_sums:
      return p.alignments[4] >= 16 && !p.transpose_b && !p.has_bias;
    case Kind::sum:
      return p.c_dtype == p.dtype && !p.accumulate && p.c_stride == p.n;
  }
  return false;
}

cublasLtEpilogue_t epilogue_of(const LibraryProduct& p) {
  switch (p.epilogue) {
    case Kind::gelu:
      return p.has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Kind::gelu_backward:
      return CUBLASLT_EPILOGUE_DGELU;
    case Kind::column_sums:
      return CUBLASLT_EPILOGUE_BGRADA;
    case Kind::sum:
    case Kind::none:
      break;
  }
  return p.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/// Warns of a failure of the library. The run continues with another algorithm or our own kernel.
void warn(const LibraryProduct& p, const std::string& failure) {
  constexpr int max_warnings = 4;  // per process, because a measurement tries hundreds of algorithms
  static std::atomic<int> warnings{0};
  const int before = warnings++;
  if (before >= max_warnings) return;
  runtime::print_stderr(
      fmt::format("ranvier: warning: product of {} × {} × {} in {}: {}; another algorithm or a built-in kernel is "
                  "used instead{}\n",
                  p.m, p.n, p.k, to_string(p.dtype), failure,
                  before + 1 < max_warnings ? "" : "; further warnings of this kind are not printed"));
}

bool is_captured(cudaStream_t queue) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  runtime::cuda::check(cudaStreamIsCapturing(queue, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

/// A multiplication ready to run; only addresses are missing.
class Plan {
 public:
  /// With the library's first proposal.
  Plan(cublasLtHandle_t library, const LibraryProduct& p) : Plan(p) {
    if (has_epilogue(p)) use(candidates(library, p, first_answer));
  }

  /// With a chosen algorithm, if it is possible; null: not by the library.
  Plan(cublasLtHandle_t library, const LibraryProduct& p, const cublasLtMatmulAlgo_t* chosen) : Plan(p) {
    if (chosen == nullptr || !has_epilogue(p)) return;
    cublasLtMatmulHeuristicResult_t result{};
    possible_ =
        cublas_lt().cublasLtMatmulAlgoCheck(library, description_.get(), first_.get(), second_.get(), result_.get(),
                                            result_.get(), chosen, &result) == CUBLAS_STATUS_SUCCESS &&
        result.workspaceSize <= cuda::stream_workspace_bytes;
    algorithm_ = *chosen;
  }

  [[nodiscard]] bool possible() const { return possible_; }
  void refuse() { possible_ = false; }
  [[nodiscard]] const cublasLtMatmulAlgo_t& algorithm() const { return algorithm_; }

  /// Returns false if the multiplication is not possible. Throws ErrorCode::device if the GPU no longer works, or while
  /// the stream is captured: the capture's caller then queues the work without a graph (graph_cache_cuda.hpp).
  bool run(cublasLtHandle_t library, cudaStream_t queue, const LibraryProduct& p, const MatmulArrays& arrays,
           const Epilogue& epilogue, std::byte* workspace) {
    const std::string failure = failure_of_run(library, queue, arrays, epilogue, workspace);
    if (failure.empty()) return true;
    if (is_captured(queue)) fail(ErrorCode::device, "{}", failure);
    cuda::expect_working_gpu(queue);
    warn(p, failure);
    return possible_ = false;
  }

  /// Chooses the fastest working proposal and returns its time; none if no proposal works.
  std::optional<double> measure(cublasLtHandle_t library, cudaStream_t queue, const LibraryProduct& p,
                                const MatmulArrays& arrays, const Epilogue& epilogue, std::byte* workspace) {
    if (!possible_) return std::nullopt;
    const auto begin = std::chrono::steady_clock::now();
    Stopwatch stopwatch(queue);
    std::optional<double> first, best;
    std::optional<cublasLtMatmulAlgo_t> fastest;
    for (const cublasLtMatmulHeuristicResult_t& answer : candidates(library, p, measured_answers(p.c_dtype))) {
      if (best && std::chrono::steady_clock::now() - begin > max_measuring) break;
      use({answer});
      if (!possible_) continue;
      std::string failure;
      const auto attempt = [&] {
        if (failure.empty()) failure = failure_of_run(library, queue, arrays, epilogue, workspace);
      };
      attempt();
      const double seconds = failure.empty() ? stopwatch.seconds_of(attempt, best ? hopeless * *best : endless) : 0;
      if (!failure.empty()) {
        cuda::expect_working_gpu(queue);
        warn(p, failure);
        continue;
      }
      if (!first) first = seconds;
      if (fastest && (seconds >= *best || seconds > worth_a_change * *first)) continue;
      best = seconds;
      fastest = answer.algo;
    }
    possible_ = fastest.has_value();
    if (possible_) algorithm_ = *fastest;
    return best;
  }

 private:
  explicit Plan(const LibraryProduct& p)
      : first_(data_type(p.dtype), p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.b_stride),
        second_(data_type(p.dtype), p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.a_stride),
        result_(data_type(p.c_dtype), p.n, p.m, p.c_stride),
        epilogue_(p.epilogue) {
    description_.set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    description_.set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    description_.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
    if (p.has_bias || epilogue_ == Kind::column_sums)
      description_.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(p.c_dtype));
    if (epilogue_ == Kind::gelu || epilogue_ == Kind::gelu_backward)
      description_.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<std::int64_t>(p.n));
    point(p.has_bias ? some_array(p.alignments[3]) : nullptr, some_array(p.alignments[4]));
  }

  /// Queues the multiplication. Returns an empty string on success.
  std::string failure_of_run(cublasLtHandle_t library, cudaStream_t queue, const MatmulArrays& arrays,
                             const Epilogue& epilogue, std::byte* workspace) {
    const bool adds = epilogue_ == Kind::sum;
    const float one = 1, old = arrays.accumulate || adds ? 1.0f : 0.0f;
    try {
      point(arrays.bias, epilogue.array);
      cublas_lt().cublasLtMatmul.checked(library, description_.get(), &one, arrays.b, first_.get(), arrays.a,
                                         second_.get(), &old, adds ? epilogue.array : arrays.c, result_.get(),
                                         arrays.c, result_.get(), &algorithm_, workspace,
                                         cuda::stream_workspace_bytes, queue);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

  void point(const void* bias, void* array) {
    if (epilogue_ == Kind::column_sums) {
      description_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, array);
    } else if (bias != nullptr) {
      description_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    if (epilogue_ == Kind::gelu || epilogue_ == Kind::gelu_backward)
      description_.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, array);
  }

  /// The library's proposals, expected fastest first; empty if it fails.
  std::vector<cublasLtMatmulHeuristicResult_t> candidates(cublasLtHandle_t library, const LibraryProduct& p,
                                                          const Search& search) const {
    try {
      Preference preference;
      preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, search.workspace_bytes);
      preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, search.reductions);
      preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.alignments[1]);
      preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.alignments[0]);
      preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.alignments[p.epilogue == Kind::sum ? 4 : 2]);
      preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.alignments[2]);
      std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(search.most));
      int count = 0;
      const cublasStatus_t status = cublas_lt().cublasLtMatmulAlgoGetHeuristic(
          library, description_.get(), first_.get(), second_.get(), result_.get(), result_.get(), preference.get(),
          search.most, found.data(), &count);
      if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
      check(status, "cublasLtMatmulAlgoGetHeuristic");
      found.resize(static_cast<std::size_t>(count));
      return found;
    } catch (const Error& error) {
      warn(p, error.what());
      return {};
    }
  }

  void use(const std::vector<cublasLtMatmulHeuristicResult_t>& answers) {
    possible_ = !answers.empty() && answers.front().state == CUBLAS_STATUS_SUCCESS;
    if (possible_) algorithm_ = answers.front().algo;
  }

  Layout first_, second_, result_;
  Description description_{CUBLAS_COMPUTE_32F, CUDA_R_32F};
  Kind epilogue_;
  cublasLtMatmulAlgo_t algorithm_{};
  bool possible_ = false;
};

/// Null if the library cannot describe the multiplication. `more`: further arguments of Plan's constructors.
template <typename... More>
std::unique_ptr<Plan> make_plan(cublasLtHandle_t library, const LibraryProduct& p, More... more) {
  try {
    return std::make_unique<Plan>(library, p, more...);
  } catch (const Error& error) {
    warn(p, error.what());
    return nullptr;
  }
}

bool is_possible(const std::unique_ptr<Plan>& plan) { return plan != nullptr && plan->possible(); }

/// State of one GPU.
struct Library {
  cublasLtHandle_t handle = nullptr;
  std::map<LibraryProduct, std::unique_ptr<Plan>> plans;  ///< null: make_plan() failed
  bool measures = false;
};

cuda::PerGpu<Library>::Held hold_library(runtime::StreamView stream) {
  auto library = cuda::gpus<Library>().hold(stream);
  if (library->handle == nullptr) cublas_lt().cublasLtCreate.checked(&library->handle);
  return library;
}

}  // namespace

bool library_matmul_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                         const Epilogue& epilogue) {
  const cudaStream_t queue = runtime::cuda::native(stream);
  std::byte* const workspace = cuda::stream_workspace(stream);
  const auto library = hold_library(stream);
  const LibraryProduct product = product_of(shape, arrays, epilogue);
  auto known = library->plans.find(product);
  if (known == library->plans.end()) {
    if (product.epilogue != Kind::none) return false;
    known = library->plans.emplace(product, make_plan(library->handle, product)).first;
    if (library->measures && product.dtype != DType::f32 && known->second != nullptr)
      (void)known->second->measure(library->handle, queue, product, arrays, epilogue, workspace);
  }
  return is_possible(known->second) &&
         known->second->run(library->handle, queue, product, arrays, epilogue, workspace);
}

void library_weigh_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                        const Epilogue& epilogue, const std::function<void()>& rest,
                        const std::function<void()>& apart) {
  const cudaStream_t queue = runtime::cuda::native(stream);
  std::byte* const workspace = cuda::stream_workspace(stream);
  const auto library = hold_library(stream);
  const LibraryProduct product = product_of(shape, arrays, epilogue);
  auto plan = make_plan(library->handle, product);
  std::optional<double> seconds;
  if (plan != nullptr) seconds = plan->measure(library->handle, queue, product, arrays, epilogue, workspace);
  if (plan != nullptr && apart) {
    Stopwatch stopwatch(queue);
    const double seconds_apart = stopwatch.seconds_of(apart);
    if (!seconds || *seconds + stopwatch.seconds_of(rest) > worth_a_change * seconds_apart) plan->refuse();
  }
  library->plans[product] = std::move(plan);
}

void library_fused_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays,
                        const Epilogue& epilogue, const std::function<void()>& rest,
                        const std::function<void()>& apart) {
  if (shape.m == 0 || shape.n == 0 || shape.k == 0 || !library_takes_whole(shape)) return apart();
  const bool is_new = [&] {
    const auto library = hold_library(stream);
    return library->measures && arrays.dtype != DType::f32 &&
           !library->plans.contains(product_of(shape, arrays, epilogue));
  }();
  if (is_new) return library_weigh_cuda(stream, shape, arrays, epilogue, rest, apart);
  library_matmul_cuda(stream, shape, arrays, epilogue) ? rest() : apart();
}

ProductLibrary product_library(runtime::StreamView stream) {
  return {runtime::cuda::properties(stream.device()).name, cublas_lt().cublasLtGetVersion()};
}

ProductChoices measure_products(runtime::StreamView stream, const std::function<void()>& work) {
  const auto library = hold_library(stream);
  {
    const cuda::Measuring measuring(library->measures);
    work();
    stream.synchronize();
  }
  cuda::release_stream_workspace(stream);
  ProductChoices result{product_library(stream), {}};
  for (const auto& [product, plan] : library->plans) {
    if (product.dtype == DType::f32) continue;
    ProductChoice& choice = result.choices.emplace_back(ProductChoice{product, {}});
    if (is_possible(plan)) choice.algorithm = std::bit_cast<ProductChoice::Algorithm>(plan->algorithm());
  }
  return result;
}

std::size_t adopt_products(runtime::StreamView stream, const ProductChoices& choices) {
  if (choices.of.version != cublas_lt().cublasLtGetVersion()) return 0;
  const auto library = hold_library(stream);
  std::size_t adopted = 0;
  for (const auto& [product, algorithm] : choices.choices) {
    std::optional<cublasLtMatmulAlgo_t> chosen;
    if (algorithm) chosen = std::bit_cast<cublasLtMatmulAlgo_t>(*algorithm);
    auto plan = make_plan(library->handle, product, chosen ? &*chosen : nullptr);
    if (chosen && !is_possible(plan)) continue;
    library->plans[product] = std::move(plan);
    ++adopted;
  }
  return adopted;
}

}  // namespace ranvier::models
