// Muon by its definition, in double: torch.optim.Muon with adjust_lr_fn="match_rms_adamw", which rounds to bf16.
#pragma once

#include "tests/test.hpp"

namespace ranvier::models {

using PlainMatrix = std::vector<std::vector<double>>;

inline PlainMatrix plain_product(const PlainMatrix& a, const PlainMatrix& b) {
  PlainMatrix c(a.size(), std::vector<double>(b[0].size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t k = 0; k < b.size(); ++k)
      for (std::size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}

inline PlainMatrix plain_transpose(const PlainMatrix& a) {
  PlainMatrix b(a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[0].size(); ++j) b[j][i] = a[i][j];
  return b;
}

/// Five Newton-Schulz steps.
inline PlainMatrix plain_orthogonalize(PlainMatrix x) {
  const bool tall = x.size() > x[0].size();
  if (tall) x = plain_transpose(x);
  double squares = 0;
  for (const std::vector<double>& row : x)
    for (const double value : row) squares += value * value;
  for (std::vector<double>& row : x)
    for (double& value : row) value /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < 5; ++step) {
    const PlainMatrix a = plain_product(x, plain_transpose(x)), a_squared = plain_product(a, a);
    PlainMatrix b = a;
    for (std::size_t i = 0; i < b.size(); ++i)
      for (std::size_t j = 0; j < b.size(); ++j) b[i][j] = -4.7750 * a[i][j] + 2.0315 * a_squared[i][j];
    const PlainMatrix bx = plain_product(b, x);
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t j = 0; j < x[0].size(); ++j) x[i][j] = 3.4445 * x[i][j] + bx[i][j];
  }
  return tall ? plain_transpose(x) : x;
}

/// State of one matrix.
class PlainMuon {
 public:
  PlainMuon(std::size_t rows, std::size_t columns) : average_(rows, std::vector<double>(columns)) {}

  /// Changes the weights, with Nesterov momentum.
  void step(PlainMatrix& weights, const PlainMatrix& gradient, double rate, double decay, double momentum) {
    const std::size_t rows = weights.size(), columns = weights[0].size();
    PlainMatrix update = gradient;
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) {
        average_[i][j] += (1 - momentum) * (gradient[i][j] - average_[i][j]);
        update[i][j] += momentum * (average_[i][j] - gradient[i][j]);
      }
    }
    update = plain_orthogonalize(std::move(update));
    const double scale = rate * 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j)
        weights[i][j] = weights[i][j] * (1 - rate * decay) - scale * update[i][j];
  }

 private:
  PlainMatrix average_;
};

}  // namespace ranvier::models
