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

class Layout {
 public:
  Layout(cudaDataType dtype, std::size_t rows, std::size_t columns, std::size_t stride) {
    check(cublas_lt().matrix_layout_create(&layout_, dtype, rows, columns, static_cast<std::int64_t>(stride)),
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

}  // namespace ranvier::models::cuda
