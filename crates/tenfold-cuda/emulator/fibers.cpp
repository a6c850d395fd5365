// Blocks and warps for kernels compiled as C++: one fiber a thread, run in turn until all are done.

#include "cuda.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulator {

thread_local Block block;

namespace {

const std::size_t STACK = 128 << 10;

#if defined(__x86_64__)
using Context = void *;
extern "C" void tenfold_switch(void **save, void *load);
asm(".text\n"
    ".globl tenfold_switch\n"
    ".type tenfold_switch,@function\n"
    "tenfold_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\n"
    "movq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\n"
    "ret\n"
    ".size tenfold_switch,.-tenfold_switch\n"
    ".section .note.GNU-stack,\"\",@progbits\n"
    ".text\n");
void jump(Context &save, Context &load) { tenfold_switch(&save, load); }
void prepare(Context &context, char *stack, void (*entry)()) {
    // Six registers, then where to return to; the stack is as a call would leave it.
    auto top = reinterpret_cast<std::uintptr_t>(stack + STACK) & ~std::uintptr_t(15);
    void **sp = reinterpret_cast<void **>(top) - 2;
    *sp = reinterpret_cast<void *>(entry);
    sp -= 6;
    for (int i = 0; i < 6; ++i) sp[i] = nullptr;
    context = sp;
}
#else
using Context = ucontext_t;
void jump(Context &save, Context &load) { swapcontext(&save, &load); }
void prepare(Context &context, char *stack, void (*entry)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = STACK;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
}
#endif

struct Meeting {
    unsigned arrived = 0, members = 0;
    std::uint64_t generation = 0;
};

struct Fiber {
    Context context;
    unsigned index = 0;
    bool done = false;
    // Operations of the warp that this lane has been through.
    std::uint64_t meetings = 0;
};

struct Warp {
    Meeting meeting;
    // Two sets: a lane may leave its next value while others still read the last.
    std::uint64_t left[2][32];
};

struct Run {
    void (*kernel)(void **) = nullptr;
    void **params = nullptr;
    Context scheduler;
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    Meeting all;
    Fiber *current = nullptr;
    // Counts what happened; a round without any is a deadlock.
    std::uint64_t progress = 0;
};

thread_local Run run;
thread_local std::vector<char> stacks;
thread_local const char *failure = nullptr;

void pause() { jump(run.current->context, run.scheduler); }

void wait(Meeting &m) {
    const std::uint64_t now = m.generation;
    ++run.progress;
    if (++m.arrived == m.members) {
        m.arrived = 0;
        ++m.generation;
        return;
    }
    while (m.generation == now) pause();
}

void body() {
    run.kernel(run.params);
    run.current->done = true;
    ++run.progress;
    for (;;) pause();
}

void run_block(unsigned threads) {
    run.fibers.assign(threads, Fiber{});
    run.warps.assign((threads + 31) / 32, Warp{});
    run.all = Meeting{};
    run.all.members = threads;
    if (stacks.size() < threads * STACK) stacks.resize(threads * STACK);
    for (unsigned t = 0; t < threads; ++t) {
        Fiber &f = run.fibers[t];
        f.index = t;
        prepare(f.context, stacks.data() + t * STACK, body);
        ++run.warps[t / 32].meeting.members;
    }
    unsigned left = threads;
    while (left > 0) {
        const std::uint64_t before = run.progress;
        left = 0;
        for (Fiber &f : run.fibers) {
            if (f.done) continue;
            run.current = &f;
            jump(run.scheduler, f.context);
            if (failure) return;
            left += !f.done;
        }
        if (left > 0 && run.progress == before) {
            failure = "some threads wait for others that have ended or wait elsewhere";
            return;
        }
    }
}

} // namespace

unsigned thread() { return run.current->index; }

void meet_block() { wait(run.all); }

const std::uint64_t *meet_warp(std::uint64_t mine) {
    Fiber &f = *run.current;
    Warp &w = run.warps[f.index / 32];
    std::uint64_t *left = w.left[f.meetings++ & 1];
    left[f.index % 32] = mine;
    wait(w.meeting);
    return left;
}

void fail(const char *why) {
    failure = why;
    for (;;) pause();
}

struct Entry {
    const char *name;
    void (*kernel)(void **);
    std::size_t bytes;
};

const Entry *find(const char *name);

// A thread's dynamic shared memory. What lies behind a block's part of it, and far before it, is nobody's: a kernel that goes there
// stops the process.
class Shared {
    static const std::size_t ROOM = 256 << 10, GUARD = 16 << 20;
    char *start;

  public:
    Shared() {
        void *all = mmap(nullptr, GUARD + ROOM + GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        start = all == MAP_FAILED ? nullptr : static_cast<char *>(all);
        if (start && mprotect(start + GUARD, ROOM, PROT_READ | PROT_WRITE) != 0) {
            munmap(start, GUARD + ROOM + GUARD);
            start = nullptr;
        }
    }
    ~Shared() {
        if (start) munmap(start, GUARD + ROOM + GUARD);
    }
    // Memory of so many bytes that ends where the guard begins, or null.
    void *last(std::size_t bytes) const { return start && bytes <= ROOM ? start + GUARD + ROOM - bytes : nullptr; }
};

} // namespace emulator

// Runs a kernel over a grid of blocks; returns why it failed, or null.
extern "C" const char *tenfold_emulate(const char *name, unsigned grid, unsigned batch, unsigned threads, unsigned shared,
                                       void **params, std::size_t bytes) {
    using namespace emulator;
    const Entry *entry = find(name);
    if (!entry) return "no such kernel";
    if (entry->bytes != bytes) return "arguments of another size";
    if (threads == 0 || threads > 1024 || threads % 32 != 0 || grid == 0 || batch == 0 || batch > 65535)
        return "grid or block of a size that no device takes";
    static thread_local const Shared all;
    const std::size_t room = (shared + 15) & ~std::size_t(15);
    void *memory = all.last(room);
    if (!memory) return "no room for shared memory";
    run.kernel = entry->kernel;
    run.params = params;
    failure = nullptr;
    for (unsigned i = 0; i < grid * batch; ++i) {
        const unsigned b = i % grid, item = i / grid;
        // What one block leaves in shared memory means nothing to the next.
        std::memset(memory, 0xa5, room);
        block = Block{{b, item, 0}, {threads, 1, 1}, {grid, batch, 1}, memory};
        run_block(threads);
        if (failure) return failure;
    }
    return nullptr;
}
