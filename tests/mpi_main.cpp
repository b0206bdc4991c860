#include "tests/mpi_session.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace {

ranvier::runtime::MpiSession* session = nullptr;

}  // namespace

ranvier::runtime::MpiSession& ranvier::test::mpi_session() { return *session; }

int main(int argc, char** argv) {
  ranvier::runtime::MpiSession mpi(argc, argv);
  session = &mpi;
  doctest::Context context(argc, argv);
  const int result = context.run();
  // The other ranks may wait for an operation that this one did not start.
  if (result != 0) {
    std::fprintf(stderr, "rank %d of %d failed\n", mpi.rank(), mpi.ranks());
    mpi.abort(result);
  }
  return 0;
}
