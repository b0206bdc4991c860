// Overhead of event loop, transport and executor over MPI. Started by mpirun; rank 0 prints one JSON line per case,
// medians.
//
//   mpirun -n 2 message_bench                 messages and ring all-reduces, compared with plain MPI
//   mpirun -n 4 message_bench [policy]        on 2 cores: time that waiting ranks take from computing ones;
//                                             policy: spin, yield, first and longest sleep in microseconds
#include "collectives/communicators/executor.hpp"
#include "collectives/plans/algorithms.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/device/device.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "runtime/transport/mpi_transport.hpp"
#include "tests/bench/bench.hpp"

#include <mpi.h>
#include <sys/resource.h>
#include <time.h>

#include <future>
#include <thread>

using namespace ranvier;
using namespace ranvier::bench;
using namespace ranvier::runtime;
using namespace std::chrono_literals;

namespace {

constexpr Tag tag{Channel::user, 0};

/// Seconds of one call of `round`: median of several after a warm-up. Collective: all ranks call it with the same work.
double seconds_per_call(int rounds, const std::function<void()>& round) {
  std::vector<double> seconds;
  for (int i = 0; i < rounds + 1; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double took = seconds_of(round);
    if (i > 0) seconds.push_back(took);
  }
  return median(seconds);
}

struct Process {
  MpiSession& session;
  AsioLoop loop;
  MpiTransport transport{session, loop};

  Process(MpiSession& mpi, const IdlePolicy& policy) : session(mpi), loop(policy) {}
  [[nodiscard]] bool first() const { return session.rank() == 0; }
};

void bare_ping_pong(std::span<std::byte> buffer, int me, int times) {
  const int bytes = static_cast<int>(buffer.size());
  for (int i = 0; i < times; ++i) {
    for (const int sender : {0, 1}) {
      MPI_Request request = MPI_REQUEST_NULL;
      if (me == sender) {
        MPI_Isend(buffer.data(), bytes, MPI_BYTE, 1 - me, 0, MPI_COMM_WORLD, &request);
      } else {
        MPI_Irecv(buffer.data(), bytes, MPI_BYTE, 1 - me, 0, MPI_COMM_WORLD, &request);
      }
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
  }
}

/// Sends a message after each arrival of the other rank's, `times` times per rank.
void loop_ping_pong(Process& process, std::span<std::byte> buffer, int times) {
  const int me = process.session.rank(), peer = 1 - me;
  int received = 0, sent = 0;
  const auto stop_at_end = [&] {
    if (received == times && sent == times) process.loop.stop();
  };
  const auto send = [&] {
    process.transport.send(peer, tag, buffer, [&] {
      ++sent;
      stop_at_end();
    });
  };
  std::function<void()> receive = [&] {
    process.transport.receive(peer, tag, buffer, [&] {
      ++received;
      if (received < times) receive();
      if (sent < times && (me == 1 || received < times)) send();
      stop_at_end();
    });
  };
  receive();
  if (me == 0) send();
  process.loop.run();
}

/// Keeps `window` messages in flight in both directions until `times` were received.
void bare_stream(std::span<std::byte> buffer, int me, int times, int window) {
  std::vector<MPI_Request> requests(2 * window, MPI_REQUEST_NULL);
  std::vector<int> done(2 * window);
  int sends = 0, receives = 0, left = 2 * times;
  const auto start = [&](int slot) {
    const int bytes = static_cast<int>(buffer.size());
    if (slot < window) {
      if (sends++ < times) MPI_Isend(buffer.data(), bytes, MPI_BYTE, 1 - me, 0, MPI_COMM_WORLD, &requests[slot]);
    } else {
      if (receives++ < times) MPI_Irecv(buffer.data(), bytes, MPI_BYTE, 1 - me, 0, MPI_COMM_WORLD, &requests[slot]);
    }
  };
  for (int slot = 0; slot < 2 * window; ++slot) start(slot);
  while (left > 0) {
    int count = 0;
    MPI_Testsome(2 * window, requests.data(), &count, done.data(), MPI_STATUSES_IGNORE);
    for (int i = 0; i < count; ++i) start(done[i]);
    left -= std::max(count, 0);
  }
}

void loop_stream(Process& process, std::span<std::byte> buffer, int times, int window) {
  const int peer = 1 - process.session.rank();
  int sends = 0, receives = 0, left = 2 * times;
  const auto count = [&] {
    if (--left == 0) process.loop.stop();
  };
  std::function<void()> send = [&] {
    if (sends++ < times) {
      process.transport.send(peer, tag, buffer, [&] {
        send();
        count();
      });
    }
  };
  std::function<void()> receive = [&] {
    if (receives++ < times) {
      process.transport.receive(peer, tag, buffer, [&] {
        receive();
        count();
      });
    }
  };
  for (int i = 0; i < window; ++i) {
    receive();
    send();
  }
  process.loop.run();
}

void bench_messages(Process& process) {
  constexpr int rounds = 11;
  const int me = process.session.rank();
  for (const std::size_t bytes : {0, 8, 1 << 10, 4 << 10, 64 << 10, 256 << 10, 1 << 20}) {
    const int times = bytes < (64 << 10) ? 2000 : 200;
    std::vector<std::byte> buffer(bytes);
    const double bare = seconds_per_call(rounds, [&] { bare_ping_pong(buffer, me, times); }) / (2 * times);
    const double ours = seconds_per_call(rounds, [&] { loop_ping_pong(process, buffer, times); }) / (2 * times);
    if (!process.first()) continue;
    print_case(R"("bench":"ping-pong","bytes":{},"mpi_us":{:.3f},"ranvier_us":{:.3f},"added_us":{:.3f})", bytes,
               bare * 1e6, ours * 1e6, (ours - bare) * 1e6);
  }
  for (const std::size_t bytes : {8, 4 << 10}) {
    constexpr int times = 5000, window = 16;
    std::vector<std::byte> buffer(bytes);
    const double bare = seconds_per_call(rounds, [&] { bare_stream(buffer, me, times, window); }) / times;
    const double ours = seconds_per_call(rounds, [&] { loop_stream(process, buffer, times, window); }) / times;
    if (!process.first()) continue;
    print_case(R"("bench":"messages each way, 16 under way","bytes":{},"mpi_per_second":{:.0f},)"
               R"("ranvier_per_second":{:.0f},"added_us":{:.3f})",
               bytes, 1 / bare, 1 / ours, (ours - bare) * 1e6);
  }
}

/// Operands of a ring all-reduce without staging.
collectives::Executor::Operands ring_all_reduce(const Buffer& data, std::size_t elements, int me, int ranks,
                                                int chunks, int depth) {
  const auto schedules = std::make_shared<const std::vector<collectives::RankSchedule>>(
      collectives::algorithm(collectives::Collective::all_reduce, "ring")
          .schedules(collectives::Topology::regular(ranks, 1), elements, chunks, me));
  collectives::Executor::Operands operands{
      .parts = {{data.data(), schedules}}, .members = std::vector<int>(ranks), .me = me, .depth = depth};
  std::iota(operands.members.begin(), operands.members.end(), 0);
  return operands;
}

void bench_all_reduce(Process& process) {
  const auto device = make_cpu_device({});
  const auto stream = device->make_stream("add", StreamWidth::one);
  collectives::Executor executor(process.loop, process.transport, *stream);
  const int me = process.session.rank(), ranks = process.session.ranks();
  for (const std::size_t mebibytes : {1, 16, 64}) {
    const std::size_t elements = (mebibytes << 20) / sizeof(float);
    const Buffer data = device->allocate(elements * sizeof(float), MemorySpace::host);
    const double mpi = seconds_per_call(7, [&] {
      MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(elements), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    for (const std::size_t chunk_kibibytes : {256, 512, 1024, 2048, 4096}) {
      const int chunks = static_cast<int>(std::max<std::size_t>(1, (mebibytes << 10) / ranks / chunk_kibibytes));
      for (const int depth : {1, 2, 4}) {
        auto operands = ring_all_reduce(data, elements, me, ranks, chunks, depth);
        const Buffer staging = device->allocate(collectives::Executor::staging_bytes(operands), MemorySpace::host);
        operands.staging = staging.data();
        const double ours = seconds_per_call(7, [&] {
          executor.run(operands, [&] { process.loop.stop(); });
          process.loop.run();
        });
        if (!process.first()) continue;
        print_case(R"("bench":"all-reduce","ranks":{},"mebibytes":{},"chunk_kibibytes":{},"depth":{},)"
                   R"("mpi_ms":{:.3f},"ranvier_ms":{:.3f})",
                   ranks, mebibytes, (mebibytes << 10) / ranks / chunks, depth, mpi * 1e3, ours * 1e3);
      }
    }
  }
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// About a millisecond of arithmetic in registers.
void compute(int milliseconds) {
  volatile double sink = 0;
  double a = 1, b = 2, c = 3, d = 4;
  for (int i = 0; i < milliseconds * 500'000; ++i) {
    a = a * 0.999999 + 0.1;
    b = b * 0.999999 + 0.1;
    c = c * 0.999999 + 0.1;
    d = d * 0.999999 + 0.1;
  }
  sink = a + b + c + d;
  (void)sink;
}

double least(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

/// Ranks compute while their loops wait for a message or reduce 16 MiB.
void bench_overlap(Process& process) {
  const auto device = make_cpu_device({});
  const auto stream = device->make_stream("compute", StreamWidth::one);
  const auto adds = device->make_stream("add", StreamWidth::one);
  collectives::Executor executor(process.loop, process.transport, *adds);
  const int me = process.session.rank(), ranks = process.session.ranks();
  constexpr std::size_t elements = (16 << 20) / sizeof(float);
  constexpr int chunks = 16, depth = 2;
  const Buffer data = device->allocate(elements * sizeof(float), MemorySpace::host);
  auto operands = ring_all_reduce(data, elements, me, ranks, chunks, depth);
  const Buffer staging = device->allocate(collectives::Executor::staging_bytes(operands), MemorySpace::host);
  operands.staging = staging.data();
  const auto work = [&] {
    for (int i = 0; i < 20; ++i) stream->launch([](ComputePool&) { compute(10); });
  };

  std::byte late{};  // something to wait for
  process.transport.receive(1 - me, Tag{Channel::user, 1}, Bytes(&late, 1), [&] { process.loop.stop(); });
  std::vector<double> alone, waiting, reducing, reduced_after, reduce_alone;
  for (int round = 0; round < 9; ++round) {
    const auto timed = [&](const std::function<void()>& run) {
      process.session.barrier();
      return seconds_of(run);
    };
    alone.push_back(timed([&] {
      work();
      std::promise<void> done;  // synchronize() may spin
      stream->call_back([&] { done.set_value(); });
      done.get_future().wait();
    }));
    waiting.push_back(timed([&] {
      work();
      stream->call_back([&] { process.loop.post([&] { process.loop.stop(); }); });
      process.loop.run();
    }));
    reduce_alone.push_back(timed([&] {
      executor.run(operands, [&] { process.loop.stop(); });
      process.loop.run();
    }));
    const auto begin = bench::Clock::now();
    reducing.push_back(timed([&] {
      int left = 2;
      const auto done = [&] {
        if (--left == 0) process.loop.stop();
      };
      executor.run(operands, [&] {
        reduced_after.push_back(seconds_since(begin));
        done();
      });
      work();
      stream->call_back([&] { process.loop.post(done); });
      process.loop.run();
    }));
  }
  process.session.barrier();
  process.transport.send(1 - me, Tag{Channel::user, 1}, ConstBytes(&late, 1), [] {});
  process.loop.run();
  if (!process.first()) return;
  print_case(R"("bench":"computing ranks","ranks":{},"alone_ms":{:.2f},"loop_waits_ms":{:.2f},)"
             R"("all_reduce_alone_ms":{:.2f},"all_reduce_beside_ms":{:.2f},"both_ms":{:.2f},)"
             R"("least":[{:.2f},{:.2f},{:.2f},{:.2f},{:.2f}])",
             ranks, median(alone) * 1e3, median(waiting) * 1e3, median(reduce_alone) * 1e3,
             median(reduced_after) * 1e3, median(reducing) * 1e3, least(alone) * 1e3, least(waiting) * 1e3,
             least(reduce_alone) * 1e3, least(reduced_after) * 1e3, least(reducing) * 1e3);
}

/// Ranks 0 and 1 compute on a stream while their loops wait for a message. The others wait, too, or exchange messages.
void bench_waiting(Process& process) {
  const int me = process.session.rank(), ranks = process.session.ranks();
  const bool computes = me < 2;
  const auto device = make_cpu_device({});
  const auto stream = device->make_stream("compute", StreamWidth::one);
  const auto work = [&] {
    for (int i = 0; i < 20; ++i) stream->launch([](ComputePool&) { compute(10); });
  };
  constexpr Tag finished{Channel::user, 1}, answer{Channel::user, 2}, passing{Channel::user, 3};
  constexpr int waiters_partner = 2;

  std::vector<double> alone, beside, share, answer_us, pass_us;
  for (int round = 0; round < 7; ++round) {
    // Alone: the others sleep for the longest possible duration.
    process.session.barrier();
    auto begin = bench::Clock::now();
    if (computes) {
      work();
      std::promise<void> done;  // synchronize() may spin
      stream->call_back([&] { done.set_value(); });
      done.get_future().wait();
      alone.push_back(seconds_since(begin));
    }
    std::this_thread::sleep_until(begin + 500ms);
    for (const bool passes : {false, true}) {
      process.session.barrier();
      begin = bench::Clock::now();
      std::byte buffer[4] = {};
      const double cpu_before = cpu_seconds();
      if (computes) {
        bench::Clock::time_point told;
        process.transport.receive(me + waiters_partner, answer, Bytes(buffer, 1), [&] {
          answer_us.push_back(seconds_since(told) * 1e6 / 2);
          process.loop.stop();
        });
        work();
        stream->call_back([&] {
          process.loop.post([&] {
            told = bench::Clock::now();
            if (!passes) beside.push_back(std::chrono::duration<double>(told - begin).count());
            process.transport.send(me + waiters_partner, finished, ConstBytes(buffer + 1, 1), [] {});
          });
        });
        process.loop.run();
      } else if (me < 4) {
        const int peer = me == 2 ? 3 : 2;
        bool over = false;
        int passed = 0, left = 2;
        const auto stop = [&] {
          if (--left == 0) process.loop.stop();
        };
        std::function<void()> pass = [&] {
          // The first byte tells the other that this is the last one.
          buffer[0] = std::byte{over};
          process.transport.send(peer, passing, ConstBytes(buffer, 1), [] {});
        };
        std::function<void()> receive = [&] {
          process.transport.receive(peer, passing, Bytes(buffer + 1, 1), [&] {
            ++passed;
            if (buffer[1] == std::byte{1} || over) {
              if (buffer[1] == std::byte{0}) pass();
              over = true;
              return stop();
            }
            receive();
            pass();
          });
        };
        if (passes) {
          receive();
          if (me == 2) pass();
        } else {
          stop();
        }
        process.transport.receive(me - 2, finished, Bytes(buffer + 2, 1), [&] {
          const double took = seconds_since(begin);
          if (!passes) share.push_back((cpu_seconds() - cpu_before) / took);
          if (passes) pass_us.push_back(took / std::max(1, 2 * passed) * 1e6);
          over = true;
          process.transport.send(me - 2, answer, ConstBytes(buffer + 3, 1), [&] { stop(); });
        });
        process.loop.run();
      }
    }
  }
  double numbers[2] = {0, 0};
  if (me == 2) {
    numbers[0] = median(share);
    numbers[1] = median(pass_us);
    MPI_Send(numbers, 2, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
  }
  if (!process.first()) return;
  MPI_Recv(numbers, 2, MPI_DOUBLE, 2, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  print_case(R"("bench":"waiting ranks","ranks":{},"alone_ms":{:.2f},"beside_ms":{:.2f},"least_alone_ms":{:.2f},)"
             R"("least_beside_ms":{:.2f},"waiting_cpu_share":{:.4f},"answer_us":{:.1f},"pass_us":{:.1f})",
             ranks, median(alone) * 1e3, median(beside) * 1e3, least(alone) * 1e3, least(beside) * 1e3, numbers[0],
             median(answer_us), numbers[1]);
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  IdlePolicy policy;
  if (argc == 5) {
    const auto microseconds = [&](int i) { return std::chrono::microseconds(std::atoi(argv[i])); };
    policy = {microseconds(1), microseconds(2), microseconds(3), microseconds(4)};
  }
  Process process(session, policy);
  if (session.ranks() == 2) {
    bench_overlap(process);
    if (argc > 1) return 0;
    bench_messages(process);
    bench_all_reduce(process);
  } else if (session.ranks() > 2) {
    bench_waiting(process);
  }
}
