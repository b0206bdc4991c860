// cuBLASLt's products as its manual defines them, one element after the other. Replaces cublas_lt_cuda.cpp. It has two
// algorithms, and one more, which adds in place. EMULATED_CUBLAS_LT makes it fail:
//
//   N:F          it has N algorithms, of which the first F fail when they are run
//   description  no product can be described
//   heuristic    no algorithm is found, for an internal reason
//   gpu          algorithms fail when they are run, and nothing works on the GPU from then on
#include "models/ops/cublas_lt_cuda.hpp"
#include "runtime/base/error.hpp"
#include "tests/emulation/stream.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace ranvier::models::cuda {
namespace {

struct Matrix {
  cudaDataType type;
  std::uint64_t rows, columns;
  std::int64_t stride;  // from one column to the next
};

struct Product {
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  std::int32_t bias_type = -1;
  void* aux = nullptr;
  std::int64_t aux_stride = 0;
};

constexpr std::uint64_t in_place = 1000;  // an algorithm is its first word; others count from 1

std::string_view failing_part() {
  const char* const given = std::getenv("EMULATED_CUBLAS_LT");
  return given == nullptr ? "" : given;
}

struct Algorithms {
  std::uint64_t all = 2, failing = 0;
};
Algorithms algorithms() {
  const std::string_view given = failing_part();
  if (given == "gpu") return {.all = 2, .failing = 2};
  const std::size_t colon = given.find(':');
  if (colon == std::string_view::npos) return {};
  return {.all = std::strtoull(given.data(), nullptr, 10),
          .failing = std::strtoull(given.data() + colon + 1, nullptr, 10)};
}

template <typename T>
T& behind(auto opaque) {
  return *reinterpret_cast<T*>(opaque);
}
Matrix& matrix(cublasLtMatrixLayout_t layout) { return behind<Matrix>(layout); }
Product& product(cublasLtMatmulDesc_t description) { return behind<Product>(description); }

template <typename Opaque, typename T>
cublasStatus_t make(Opaque* made, T* object) {
  *made = reinterpret_cast<Opaque>(object);
  return CUBLAS_STATUS_SUCCESS;
}
template <typename T, typename Opaque>
cublasStatus_t destroy(Opaque opaque) {
  delete &behind<T>(opaque);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t assign(T& to, const void* from, std::size_t bytes) {
  if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

float load(const void* array, int type, std::size_t i) {
  if (type == CUDA_R_16BF) return __bfloat162float(static_cast<const __nv_bfloat16*>(array)[i]);
  if (type == CUDA_R_16F) return __half2float(static_cast<const __half*>(array)[i]);
  return static_cast<const float*>(array)[i];
}
void store(void* array, int type, std::size_t i, float value) {
  if (type == CUDA_R_16BF) {
    static_cast<__nv_bfloat16*>(array)[i] = __float2bfloat16_rn(value);
  } else if (type == CUDA_R_16F) {
    static_cast<__half*>(array)[i] = __float2half_rn(value);
  } else {
    static_cast<float*>(array)[i] = value;
  }
}

constexpr double root_2_over_pi = 0.79788456080286535588;
double inner(double x) { return root_2_over_pi * (x + 0.044715 * x * x * x); }
double gelu(double x) { return 0.5 * x * (1 + std::tanh(inner(x))); }
double gelu_slope(double x) {
  const double t = std::tanh(inner(x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root_2_over_pi * (1 + 3 * 0.044715 * x * x);
}

bool adds_bias(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool has_aux(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_DGELU;
}

/// Whether the library accepts the call.
bool fits(const Product& p, const Matrix& a, const Matrix& b, const Matrix& d) {
  const bool ta = p.transpose_a == CUBLAS_OP_T, tb = p.transpose_b == CUBLAS_OP_T;
  const std::uint64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
  const std::uint64_t k_of_b = tb ? b.columns : b.rows, n = tb ? b.rows : b.columns;
  const auto is_strided = [](const Matrix& x) { return x.stride >= static_cast<std::int64_t>(x.rows); };
  if (k != k_of_b || d.rows != m || d.columns != n || a.type != b.type) return false;
  if (!is_strided(a) || !is_strided(b) || !is_strided(d)) return false;
  if ((adds_bias(p.epilogue) || p.epilogue == CUBLASLT_EPILOGUE_BGRADA) &&
      (p.bias == nullptr || p.bias_type != d.type))
    return false;
  if (p.epilogue == CUBLASLT_EPILOGUE_BGRADA && ta) return false;
  return !has_aux(p.epilogue) || (p.aux != nullptr && p.aux_stride % 8 == 0 && p.aux_stride >= d.stride);
}

/// Computes the elements of d one after the other.
struct Multiplication {
  Product p;
  Matrix a, b, c, d;
  float factor, old;
  const void *a_array, *b_array, *c_array;
  void* d_array;

  void operator()() const {
    const bool ta = p.transpose_a == CUBLAS_OP_T, tb = p.transpose_b == CUBLAS_OP_T;
    const auto at = [](const Matrix& x, std::size_t row, std::size_t column) {
      return column * static_cast<std::size_t>(x.stride) + row;
    };
    const auto of_a = [&](std::size_t i, std::size_t k) {
      return load(a_array, a.type, ta ? at(a, k, i) : at(a, i, k));
    };
    const std::size_t depth = ta ? a.rows : a.columns;
    for (std::size_t i = 0; i < d.rows; ++i) {
      if (p.epilogue == CUBLASLT_EPILOGUE_BGRADA) {
        double sum = 0;
        for (std::size_t k = 0; k < depth; ++k) sum += static_cast<double>(of_a(i, k));
        store(p.bias, p.bias_type, i, static_cast<float>(sum));
      }
      for (std::size_t j = 0; j < d.columns; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k < depth; ++k) {
          const float right = load(b_array, b.type, tb ? at(b, j, k) : at(b, k, j));
          sum += static_cast<double>(of_a(i, k)) * static_cast<double>(right);
        }
        sum *= static_cast<double>(factor);
        if (old != 0) sum += static_cast<double>(old) * static_cast<double>(load(c_array, c.type, at(c, i, j)));
        if (adds_bias(p.epilogue)) sum += static_cast<double>(load(p.bias, p.bias_type, i));
        const std::size_t of_aux = j * static_cast<std::size_t>(p.aux_stride) + i;
        if (p.epilogue == CUBLASLT_EPILOGUE_DGELU) {
          sum *= gelu_slope(static_cast<double>(load(p.aux, d.type, of_aux)));
        } else if (has_aux(p.epilogue)) {
          store(p.aux, d.type, of_aux, static_cast<float>(sum));
          sum = gelu(sum);
        }
        store(d_array, d.type, at(d, i, j), static_cast<float>(sum));
      }
    }
  }
};

cublasStatus_t multiply(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha, const void* a_array,
                        cublasLtMatrixLayout_t a_layout, const void* b_array, cublasLtMatrixLayout_t b_layout,
                        const void* beta, const void* c_array, cublasLtMatrixLayout_t c_layout, void* d_array,
                        cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void*, std::size_t,
                        cudaStream_t stream) {
  if (algorithm->data[0] <= algorithms().failing) {
    if (failing_part() == "gpu") emulation::break_gpu();
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  const Multiplication multiplication{product(description),
                                      matrix(a_layout),
                                      matrix(b_layout),
                                      matrix(c_layout),
                                      matrix(d_layout),
                                      *static_cast<const float*>(alpha),
                                      *static_cast<const float*>(beta),
                                      a_array,
                                      b_array,
                                      c_array,
                                      d_array};
  const Matrix &c = multiplication.c, &d = multiplication.d;
  if (!fits(multiplication.p, multiplication.a, multiplication.b, d) || c.rows != d.rows || c.columns != d.columns)
    return CUBLAS_STATUS_INVALID_VALUE;
  emulation::queue(stream, multiplication);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set_attribute(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute,
                             const void* from, std::size_t bytes) {
  if (failing_part() == "description") return CUBLAS_STATUS_INVALID_VALUE;
  Product& p = product(description);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(p.transpose_a, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(p.transpose_b, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(p.epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(p.bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return assign(p.bias_type, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return assign(p.aux, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return assign(p.aux_stride, from, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t set_preference(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                              const void* from, std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
    return assign(behind<std::uint32_t>(preference), from, bytes);
  const std::size_t expected = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4;
  return bytes == expected ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t answer(cublasLtHandle_t, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                      cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                      cublasLtMatmulPreference_t preference, int most, cublasLtMatmulHeuristicResult_t* results,
                      int* count) {
  *count = 0;
  if (failing_part() == "heuristic") return CUBLAS_STATUS_INTERNAL_ERROR;
  if (!fits(product(description), matrix(a), matrix(b), matrix(d))) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto add = [&](std::uint64_t algorithm) {
    if (*count == most) return;
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    result = {};
    result.algo.data[0] = algorithm;
    result.state = CUBLAS_STATUS_SUCCESS;
  };
  for (std::uint64_t algorithm = 1; algorithm <= algorithms().all; ++algorithm) add(algorithm);
  if ((behind<std::uint32_t>(preference) & CUBLASLT_REDUCTION_SCHEME_INPLACE) != 0) add(in_place);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t check_algorithm(cublasLtHandle_t, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                               cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                               const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  *result = {};
  const bool known = algorithm->data[0] >= 1 && algorithm->data[0] <= in_place;
  return known && fits(product(description), matrix(a), matrix(b), matrix(d)) ? CUBLAS_STATUS_SUCCESS
                                                                              : CUBLAS_STATUS_NOT_SUPPORTED;
}

}  // namespace

const CublasLt& cublas_lt() {
  static const CublasLt functions{
      .cublasLtMatmulPreferenceCreate = {"cublasLtMatmulPreferenceCreate",
                                         [](cublasLtMatmulPreference_t* made) {
                                           return make(made, new std::uint32_t{CUBLASLT_REDUCTION_SCHEME_MASK});
                                         }},
      .cublasLtMatmulPreferenceDestroy = {"cublasLtMatmulPreferenceDestroy", destroy<std::uint32_t>},
      .cublasLtMatmulPreferenceSetAttribute = {"cublasLtMatmulPreferenceSetAttribute", set_preference},
      .cublasLtMatmulAlgoGetHeuristic = {"cublasLtMatmulAlgoGetHeuristic", answer},
      .cublasLtMatmulDescCreate = {"cublasLtMatmulDescCreate",
                                   [](cublasLtMatmulDesc_t* made, cublasComputeType_t compute, cudaDataType) {
                                     return compute == CUBLAS_COMPUTE_32F ? make(made, new Product)
                                                                          : CUBLAS_STATUS_NOT_SUPPORTED;
                                   }},
      .cublasLtMatmulDescDestroy = {"cublasLtMatmulDescDestroy", destroy<Product>},
      .cublasLtMatmulDescSetAttribute = {"cublasLtMatmulDescSetAttribute", set_attribute},
      .cublasLtMatrixLayoutCreate = {"cublasLtMatrixLayoutCreate",
                                     [](cublasLtMatrixLayout_t* made, cudaDataType type, std::uint64_t rows,
                                        std::uint64_t columns, std::int64_t stride) {
                                       return make(made, new Matrix{type, rows, columns, stride});
                                     }},
      .cublasLtMatrixLayoutDestroy = {"cublasLtMatrixLayoutDestroy", destroy<Matrix>},
      .cublasLtGetStatusString = {"cublasLtGetStatusString",
                                  [](cublasStatus_t) { return "refused by the emulated cuBLASLt"; }},
      .cublasLtCreate = {"cublasLtCreate",
                         [](cublasLtHandle_t* made) {
                           static int one;
                           return make(made, &one);
                         }},
      .cublasLtMatmul = {"cublasLtMatmul", multiply},
      .cublasLtMatmulAlgoCheck = {"cublasLtMatmulAlgoCheck", check_algorithm},
      .cublasLtGetVersion = {"cublasLtGetVersion", [] { return std::size_t{1}; }},
  };
  return functions;
}

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(ErrorCode::device, "{}: refused by the emulated cuBLASLt", call);
}

}  // namespace ranvier::models::cuda
