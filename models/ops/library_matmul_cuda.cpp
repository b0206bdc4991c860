// cuBLASLt counts columns first. A row-major c[M, N] is its column-major cᵀ, so it is given cᵀ = bᵀ · aᵀ: its first
// operand is b, its second a, its rows are N, and a bias along its rows is one along N.
#include "models/ops/library_matmul_cuda.hpp"

#include "models/ops/stream_workspace_cuda.hpp"
#include "runtime/cuda_native.hpp"
#include "runtime/device.hpp"
#include "runtime/error.hpp"

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace ranvier::models {
namespace {

using runtime::DType;

/// cuBLASLt's functions, from the library as the first product finds it: a job that multiplies elsewhere does not
/// load it. Throws ErrorCode::device where it is not to be had.
class CublasLt {
 private:
  static void* library() {
    static void* const opened = [] {
      const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
      void* found = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (found == nullptr) found = dlopen(RANVIER_CUBLAS_LT, RTLD_NOW | RTLD_LOCAL);
      if (found == nullptr) {
        fail(ErrorCode::device,
             "neither {} nor {} can be opened: {}; install cuBLAS {} or put its folder into "
             "LD_LIBRARY_PATH",
             name, RANVIER_CUBLAS_LT, dlerror(), CUBLAS_VER_MAJOR);
      }
      return found;
    }();
    return opened;
  }
  template <typename Function>
  static Function find(const char* name) {
    void* const found = dlsym(library(), name);
    if (found == nullptr) fail(ErrorCode::device, "{} is not in the cuBLASLt that was opened: {}", name, dlerror());
    return reinterpret_cast<Function>(found);
  }

 public:
  decltype(&cublasLtMatmulPreferenceCreate) matmul_preference_create =
      find<decltype(&cublasLtMatmulPreferenceCreate)>("cublasLtMatmulPreferenceCreate");
  decltype(&cublasLtMatmulPreferenceDestroy) matmul_preference_destroy =
      find<decltype(&cublasLtMatmulPreferenceDestroy)>("cublasLtMatmulPreferenceDestroy");
  decltype(&cublasLtMatmulPreferenceSetAttribute) matmul_preference_set_attribute =
      find<decltype(&cublasLtMatmulPreferenceSetAttribute)>("cublasLtMatmulPreferenceSetAttribute");
  decltype(&cublasLtMatmulAlgoGetHeuristic) matmul_algo_get_heuristic =
      find<decltype(&cublasLtMatmulAlgoGetHeuristic)>("cublasLtMatmulAlgoGetHeuristic");
  decltype(&cublasLtMatmulDescCreate) matmul_desc_create =
      find<decltype(&cublasLtMatmulDescCreate)>("cublasLtMatmulDescCreate");
  decltype(&cublasLtMatmulDescDestroy) matmul_desc_destroy =
      find<decltype(&cublasLtMatmulDescDestroy)>("cublasLtMatmulDescDestroy");
  decltype(&cublasLtMatmulDescSetAttribute) matmul_desc_set_attribute =
      find<decltype(&cublasLtMatmulDescSetAttribute)>("cublasLtMatmulDescSetAttribute");
  decltype(&cublasLtMatrixLayoutCreate) matrix_layout_create =
      find<decltype(&cublasLtMatrixLayoutCreate)>("cublasLtMatrixLayoutCreate");
  decltype(&cublasLtMatrixLayoutDestroy) matrix_layout_destroy =
      find<decltype(&cublasLtMatrixLayoutDestroy)>("cublasLtMatrixLayoutDestroy");
  decltype(&cublasLtGetStatusString) get_status_string =
      find<decltype(&cublasLtGetStatusString)>("cublasLtGetStatusString");
  decltype(&cublasLtCreate) create = find<decltype(&cublasLtCreate)>("cublasLtCreate");
  decltype(&cublasLtMatmul) matmul = find<decltype(&cublasLtMatmul)>("cublasLtMatmul");
};

const CublasLt& cublas_lt() {
  static const CublasLt functions;
  return functions;
}

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::memory : ErrorCode::device, "{} failed: {} (status {})",
       call, cublas_lt().get_status_string(status), static_cast<int>(status));
}

cudaDataType data_type(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

/// The greatest power of two, up to 256, that divides the address: algorithms ask for so many bytes.
std::uint32_t alignment(const void* array) {
  const auto address = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(array) & 255u);
  return address == 0 ? 256 : address & (0 - address);
}

/// All that an algorithm depends on.
struct Product {
  Product(const MatmulShape& s, const MatmulArrays& x)
      : m(s.m),
        n(s.n),
        k(s.k),
        a_stride(s.a_stride != 0 ? s.a_stride
                 : s.transpose_a ? s.m
                                 : s.k),
        b_stride(s.b_stride != 0 ? s.b_stride
                 : s.transpose_b ? s.k
                                 : s.n),
        c_stride(s.c_stride != 0 ? s.c_stride : s.n),
        transpose_a(s.transpose_a),
        transpose_b(s.transpose_b),
        dtype(x.dtype),
        c_dtype(x.c_dtype),
        has_bias(x.bias != nullptr),
        accumulate(x.accumulate),
        alignments{alignment(x.a), alignment(x.b), alignment(x.c), has_bias ? alignment(x.bias) : 256} {}

  auto operator<=>(const Product&) const = default;

  std::size_t m, n, k, a_stride, b_stride, c_stride;
  bool transpose_a, transpose_b;
  DType dtype, c_dtype;
  bool has_bias, accumulate;
  std::array<std::uint32_t, 4> alignments;  ///< of a, b, c, bias
};

class Layout {
 public:
  Layout(DType dtype, std::size_t rows, std::size_t columns, std::size_t stride) {
    check(cublas_lt().matrix_layout_create(&layout_, data_type(dtype), rows, columns,
                                           static_cast<std::int64_t>(stride)),
          "cublasLtMatrixLayoutCreate");
  }
  ~Layout() { cublas_lt().matrix_layout_destroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  [[nodiscard]] cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class Description {
 public:
  Description() {
    check(cublas_lt().matmul_desc_create(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
  }
  ~Description() { cublas_lt().matmul_desc_destroy(description_); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(cublas_lt().matmul_desc_set_attribute(description_, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }
  [[nodiscard]] cublasLtMatmulDesc_t get() const { return description_; }

 private:
  cublasLtMatmulDesc_t description_ = nullptr;
};

class Preference {
 public:
  Preference() { check(cublas_lt().matmul_preference_create(&preference_), "cublasLtMatmulPreferenceCreate"); }
  ~Preference() { cublas_lt().matmul_preference_destroy(preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;

  template <typename Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    check(cublas_lt().matmul_preference_set_attribute(preference_, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  }
  [[nodiscard]] cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

/// A product that is ready to run: only addresses are missing.
class Plan {
 public:
  Plan(cublasLtHandle_t library, const Product& p)
      : first_(p.dtype, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.b_stride),
        second_(p.dtype, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.a_stride),
        result_(p.c_dtype, p.n, p.m, p.c_stride) {
    description_.set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    description_.set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.has_bias) {
      description_.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      description_.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(p.c_dtype));
    }
    Preference preference;
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::size_t{cuda::stream_workspace_bytes});
    // Parts of a sum over K are added in float, not in the type of the result.
    preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.alignments[1]);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.alignments[0]);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.alignments[2]);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.alignments[2]);
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status =
        cublas_lt().matmul_algo_get_heuristic(library, description_.get(), first_.get(), second_.get(),
                                              result_.get(), result_.get(), preference.get(), 1, &best, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0)) return;
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    algorithm_ = best.algo;
    possible_ = best.state == CUBLAS_STATUS_SUCCESS;
  }

  [[nodiscard]] bool possible() const { return possible_; }

  /// False if it turns out not to be possible.
  bool run(cublasLtHandle_t library, cudaStream_t queue, const MatmulArrays& arrays, std::byte* workspace) {
    if (arrays.bias != nullptr) description_.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, arrays.bias);
    const float one = 1, old = arrays.accumulate ? 1.0f : 0.0f;
    const cublasStatus_t status = cublas_lt().matmul(
        library, description_.get(), &one, arrays.b, first_.get(), arrays.a, second_.get(), &old, arrays.c,
        result_.get(), arrays.c, result_.get(), &algorithm_, workspace, cuda::stream_workspace_bytes, queue);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return possible_ = false;
    check(status, "cublasLtMatmul");
    return true;
  }

 private:
  Layout first_, second_, result_;
  Description description_;
  cublasLtMatmulAlgo_t algorithm_{};
  bool possible_ = false;
};

/// What a process keeps of one GPU. Never destroyed: the driver may be gone by then.
struct Library {
  cublasLtHandle_t handle = nullptr;
  std::map<Product, std::unique_ptr<Plan>> plans;
};

}  // namespace

bool library_matmul_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays) {
  // Ranks that share a process have a loop each.
  static std::mutex mutex;
  static auto& libraries = *new std::map<int, Library>;
  if (arrays.bias != nullptr && alignment(arrays.bias) < 16) return false;  // epilogues read it in vectors
  const cudaStream_t queue = runtime::cuda::native(stream);
  std::byte* const workspace = cuda::stream_workspace(stream);
  const std::lock_guard lock(mutex);
  Library& library = libraries[runtime::cuda::properties(stream.device()).ordinal];
  if (library.handle == nullptr) check(cublas_lt().create(&library.handle), "cublasLtCreate");
  auto& plan = library.plans[Product(shape, arrays)];
  if (!plan) plan = std::make_unique<Plan>(library.handle, Product(shape, arrays));
  return plan->possible() && plan->run(library.handle, queue, arrays, workspace);
}

}  // namespace ranvier::models
