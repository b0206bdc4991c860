// NCCL with one rank, from connecting to closing, compared with a plan of one rank.
#include "collectives/nccl/nccl_column.hpp"
#include "runtime/base/error.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "tests/collectives/nccl_under_test.hpp"
#include "tests/device_under_test.hpp"
#include "tests/doubles/transports.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::collectives;
using namespace ranvier::runtime;

TEST_CASE("one rank's collectives by NCCL leave what a plan of one rank leaves") {
  if (const auto reason = tests::missing_nccl()) {
    MESSAGE("skipped: " << *reason);
    return;
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    CAPTURE(to_string(dtype));
    AsioLoop loop;
    tests::LoneTransport alone;
    const auto nccl = tests::make_nccl_under_test();
    nccl->device().on_failure([&](std::exception_ptr error) { loop.stop(error); });
    const auto stream = nccl->device().make_stream("test", StreamWidth::one);
    NcclColumn column(loop, alone, nccl->device(), nccl->library(), {.ranks = {0}});
    const PlanCommunicator::Options of_one{.team = {Topology::regular(1, 1), {0}}, .ranks = {0}};
    const auto by_nccl = column.communicator(TeamKind::column, 0, of_one);
    Executor executor(loop, alone, *stream);
    PlanCommunicator by_plan(loop, executor, of_one);

    // As bytes: three parts, one of them in runs, whose gaps stay unchanged.
    std::vector<unsigned char> values(4096);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<unsigned char>(i % 61);
    const tests::OnDevice<unsigned char> first(*stream, values), second(*stream, values);
    const auto run_all = [&](Communicator& communicator, const tests::OnDevice<unsigned char>& on_device,
                             const std::function<void()>& done) {
      auto* data = reinterpret_cast<std::byte*>(on_device.data());
      const std::vector<Communicator::Operand> parts = {{data, 100}, {data + 1024, 1}, {data + 2048, 60, 20, 30}};
      const auto left = std::make_shared<int>(3);
      for (const Collective collective :
           {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
        communicator.run(collective, parts, dtype, "test", [left, done] {
          if (--*left == 0) done();
        });
      }
    };
    column.connect([&] { run_all(*by_nccl, first, [&] { run_all(by_plan, second, [&] { loop.stop(); }); }); });
    loop.run();
    CHECK(by_nccl->running().empty());
    CHECK(first.read() == values);
    CHECK(second.read() == first.read());
  }
}
