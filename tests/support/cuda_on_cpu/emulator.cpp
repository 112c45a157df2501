// One launch of a kernel on a CPU: a shared library for cuda_emulator.py, which says which kernel.

#include "emulator.h"

#include KERNEL_SOURCE

inline void __syncthreads() { emulated::this_program().barriers[0].wait(kThreads); }

namespace {

constexpr int kStackBytes = 1 << 16;
constexpr long kIdleTurns = 300;  // in which nothing happens that somebody may wait for: everybody waits for ever

const Arguments* arguments;

constexpr long kFrontTurns = 60;  // until the kernel in front has ended

struct Front {  // what it stores at its end
  void* to;
  const void* from;
  size_t num_bytes;
};

Front front;

void run_thread() {
  if (front.num_bytes) emulated::yield_some(40);  // programs begin one by one, while it still runs
  KERNEL_NAME(*arguments);
  emulated::current->is_over = true;
  emulated::yield();
}

void do_what_is_due() {
  auto& pending = emulated::pending;
  std::shuffle(pending.begin(), pending.end(), emulated::random_numbers);
  for (size_t i = 0; i < pending.size();)
    if (pending[i].due <= emulated::turn) {
      emulated::num_events++;
      auto act = std::move(pending[i].act);
      pending[i] = std::move(pending.back());
      pending.pop_back();
      act();
    } else {
      i++;
    }
}

// Programs `first` up to `end`, together. Where one fails the reason is in emulated::failure.
void run_programs(int first, int end, int shared_bytes) {
  std::vector<std::unique_ptr<emulated::Program>> programs;
  std::vector<std::unique_ptr<emulated::Thread>> threads;
  for (int block = first; block < end; block++) {
    auto program = std::make_unique<emulated::Program>();
    program->room.assign(shared_bytes + 1024, (char)0xFF);  // what is not written is not a number
    program->memory = (char*)(((size_t)program->room.data() + 1023) / 1024 * 1024);
    program->warps.resize(kThreads / 32);
    for (int index = 0; index < kThreads; index++) {
      auto thread = std::make_unique<emulated::Thread>();
      thread->program = program.get(), thread->block = block, thread->index = index;
      thread->stack = std::make_unique<char[]>(kStackBytes);
      getcontext(&thread->context);
      thread->context.uc_stack.ss_sp = thread->stack.get(), thread->context.uc_stack.ss_size = kStackBytes;
      thread->context.uc_link = nullptr;
      makecontext(&thread->context, run_thread, 0);
      threads.push_back(std::move(thread));
    }
    programs.push_back(std::move(program));
  }
  std::vector<emulated::Thread*> living;
  for (auto& thread : threads) living.push_back(thread.get());
  long last_event_turn = 0, num_events = 0;
  for (; !living.empty() && emulated::failure.empty(); emulated::turn++) {
    if (emulated::turn % 8 == 0) std::shuffle(living.begin(), living.end(), emulated::random_numbers);
    for (auto* thread : living) {
      // Who polls looks again when something was stored, and now and then.
      bool has_seen_all = thread->is_polling && thread->num_stores_seen == emulated::num_stores;
      if (thread->is_parked || (has_seen_all && emulated::turn % 16 != 0)) continue;
      emulated::current = thread;
      threadIdx.x = thread->index;
      blockIdx.x = thread->block % gridDim.x, blockIdx.y = thread->block / gridDim.x % gridDim.y;
      blockIdx.z = thread->block / gridDim.x / gridDim.y;
      swapcontext(&emulated::scheduler, &thread->context);
    }
    if (!emulated::has_front_ended && emulated::turn >= kFrontTurns) {
      if (front.num_bytes) std::memcpy(front.to, front.from, front.num_bytes);
      emulated::has_front_ended = true, emulated::num_events++;
    }
    do_what_is_due();
    size_t num_before = living.size();
    auto is_over = [](auto* thread) { return thread->is_over; };
    living.erase(std::remove_if(living.begin(), living.end(), is_over), living.end());
    if (num_events != emulated::num_events || living.size() != num_before) last_event_turn = emulated::turn;
    num_events = emulated::num_events;
    if (emulated::turn - last_event_turn > kIdleTurns) {
      emulated::failure = "everybody waits: " + std::to_string(living.size()) + " threads, among them";
      for (size_t i = 0; i < living.size() && i < 8; i++)
        emulated::failure += " " + std::to_string(living[i]->block) + "." + std::to_string(living[i]->index);
    }
  }
  if (!emulated::failure.empty()) return;
  for (auto& job : emulated::pending) job.act();  // stores that nobody waited for, as the epoch's: there at its end
  emulated::pending.clear();
}

}  // namespace

// `num_together`: of the programs, which otherwise follow one another. 0, or 1 and why in `said`.
extern "C" int emulate(const Arguments* args, const Front* in_front, const int* grid, int num_together,
                       int shared_bytes, unsigned seed, char* said, int room) {
  arguments = args, front = *in_front, emulated::has_front_ended = front.num_bytes == 0;
  emulated::random_numbers.seed(seed);
  emulated::failure.clear(), emulated::pending.clear(), emulated::turn = 0, emulated::num_events = 0;
  gridDim.x = grid[0], gridDim.y = grid[1], gridDim.z = grid[2];
  int num_programs = grid[0] * grid[1] * grid[2];
  for (int first = 0; first < num_programs && emulated::failure.empty(); first += num_together)
    run_programs(first, std::min(first + num_together, num_programs), shared_bytes);
  std::snprintf(said, room, "%s", emulated::failure.c_str());
  return !emulated::failure.empty();
}
