// One rank of a job in this process.
#pragma once

#include "collectives/communicators/executor.hpp"
#include "runtime/device/device.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "runtime/transport/mpi_transport.hpp"
#include "tests/mpi_session.hpp"

#include <exception>
#include <memory>

namespace ranvier::test {

/// Additions run on a stream with its own thread.
struct MpiRank {
  runtime::AsioLoop loop;  ///< outlives the threads that post to it
  std::unique_ptr<runtime::Device> device = runtime::make_cpu_device({});
  std::unique_ptr<runtime::Stream> stream = device->make_stream("add", runtime::StreamWidth::one);
  runtime::MpiTransport transport{mpi_session(), loop};
  collectives::Executor executor{loop, transport, *stream};

  MpiRank() {
    device->on_failure([this](std::exception_ptr error) { loop.stop(error); });
  }
};

}  // namespace ranvier::test
