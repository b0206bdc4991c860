// cuBLASLt's functions, loaded at the first matrix multiplication, and its descriptors as classes. Only
// library_matmul_cuda.cpp includes this.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

namespace ranvier::models::cuda {

/// Functions of the library, loaded when needed, so that other jobs do not load it.
struct CublasLt {
  decltype(&cublasLtMatmulPreferenceCreate) matmul_preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) matmul_preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) matmul_preference_set_attribute;
  decltype(&cublasLtMatmulAlgoGetHeuristic) matmul_algo_get_heuristic;
  decltype(&cublasLtMatmulDescCreate) matmul_desc_create;
  decltype(&cublasLtMatmulDescDestroy) matmul_desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) matmul_desc_set_attribute;
  decltype(&cublasLtMatrixLayoutCreate) matrix_layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) matrix_layout_destroy;
  decltype(&cublasLtGetStatusString) get_status_string;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoCheck) matmul_algo_check;
  decltype(&cublasLtGetVersion) get_version;
};

/// Throws ErrorCode::device if the library cannot be loaded.
[[nodiscard]] const CublasLt& cublas_lt();

/// Throws ErrorCode::device, or ErrorCode::memory if memory is exhausted, with the call and the library's message.
void check(cublasStatus_t status, const char* call);

/// A descriptor of the library, created by a subclass and destroyed by `destroy`.
template <typename Handle, auto destroy>
class Descriptor {
 public:
  ~Descriptor() {
    if (handle_ != nullptr) (cublas_lt().*destroy)(handle_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] Handle get() const { return handle_; }

 protected:
  Descriptor() = default;

  Handle handle_ = nullptr;
};

class Layout : public Descriptor<cublasLtMatrixLayout_t, &CublasLt::matrix_layout_destroy> {
 public:
  Layout(cudaDataType dtype, std::size_t rows, std::size_t columns, std::size_t stride) {
    check(cublas_lt().matrix_layout_create(&handle_, dtype, rows, columns, static_cast<std::int64_t>(stride)),
          "cublasLtMatrixLayoutCreate");
  }
};

class Description : public Descriptor<cublasLtMatmulDesc_t, &CublasLt::matmul_desc_destroy> {
 public:
  Description() {
    check(cublas_lt().matmul_desc_create(&handle_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  }

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(cublas_lt().matmul_desc_set_attribute(handle_, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }
};

class Preference : public Descriptor<cublasLtMatmulPreference_t, &CublasLt::matmul_preference_destroy> {
 public:
  Preference() { check(cublas_lt().matmul_preference_create(&handle_), "cublasLtMatmulPreferenceCreate"); }

  template <typename Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    check(cublas_lt().matmul_preference_set_attribute(handle_, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  }
};

}  // namespace ranvier::models::cuda
