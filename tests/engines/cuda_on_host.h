// CUDA C as C++ of the host: one block after another, its threads as coroutines.
//
// A kernel is compiled with `g++ -fsanitize=thread`, which calls __tsan_write8(address) and the
// like before each store to memory that other threads may see. No sanitizer is linked: those
// calls are ours, and end the thread's turn. So a thread runs from one store to the next, and
// between its loads and the store that depends on them every other thread of the block may load.

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#define OURS __attribute__((no_sanitize_thread, noinline))
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __shared__ static  // one block runs at a time, and finds what the one before it left
#define __launch_bounds__(...)

using std::max;
using std::min;

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace host {

enum Order { LOCKSTEP, SHUFFLED };

struct Thread {
    ucontext_t context;
    dim3 index;
    bool waits = false, done = false;
};

static std::vector<Thread> threads;
static std::vector<char> stacks;
static ucontext_t scheduler;
static size_t current;
static void (*body)(void*);
static void* data;
static uint64_t drawn;

const size_t STACK = 1 << 16;

static bool inside;  // a thread has the turn, and not what is above it here

OURS static void yield() {
    if (inside) swapcontext(&threads.data()[current].context, &scheduler);
}

OURS static void enter() {
    body(data);
    threads[current].done = true;
    yield();
}

OURS static uint64_t draw() {  // xorshift
    drawn ^= drawn << 13, drawn ^= drawn >> 7, drawn ^= drawn << 17;
    return drawn;
}

OURS static void turn(size_t k) {
    current = k;
    threadIdx = threads[k].index;
    inside = true;
    swapcontext(&scheduler, &threads[k].context);
    inside = false;
}

OURS static void run_block(Order order) {
    size_t n = threads.size();
    for (size_t k = 0; k < n; k++) {
        Thread& t = threads[k];
        getcontext(&t.context);
        t.context.uc_stack.ss_sp = stacks.data() + k * STACK;
        t.context.uc_stack.ss_size = STACK;
        t.context.uc_link = nullptr;
        makecontext(&t.context, enter, 0);
        unsigned i = static_cast<unsigned>(k);
        t.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
        t.waits = t.done = false;
    }
    std::vector<size_t> ready(n);
    for (;;) {
        ready.clear();
        for (size_t k = 0; k < n; k++)
            if (!threads[k].done && !threads[k].waits) ready.push_back(k);
        if (ready.empty()) {  // all are done, or at the barrier
            bool waiting = false;
            for (Thread& t : threads) waiting |= !t.done, t.waits = false;
            if (!waiting) return;
        } else if (order == SHUFFLED) {
            turn(ready[draw() % ready.size()]);
        } else {
            for (size_t k : ready) turn(k);
        }
    }
}

template <class... A, size_t... I>
OURS void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_reference_t<A>*>(arguments[I])...);
}

template <class... A>
OURS int launch(void (*kernel)(A...), const unsigned* size, void** arguments, int count, int order,
                uint64_t seed) {
    if (count != int(sizeof...(A))) return int(sizeof...(A));
    gridDim = {size[0], size[1], size[2]}, blockDim = {size[3], size[4], size[5]};
    threads.resize(size_t(blockDim.x) * blockDim.y * blockDim.z);
    stacks.resize(threads.size() * STACK);
    drawn = seed * 0x9E3779B97F4A7C15u + 1;
    auto one = [&] { call(kernel, arguments, std::index_sequence_for<A...>()); };
    body = [](void* p) { (*static_cast<decltype(one)*>(p))(); };
    data = &one;
    std::vector<size_t> blocks(size_t(gridDim.x) * gridDim.y * gridDim.z);
    for (size_t k = 0; k < blocks.size(); k++) blocks[k] = k;
    if (order == SHUFFLED)
        for (size_t k = blocks.size(); k > 1; k--) std::swap(blocks[k - 1], blocks[draw() % k]);
    for (size_t k : blocks) {
        unsigned b = static_cast<unsigned>(k);
        blockIdx = {b % gridDim.x, b / gridDim.x % gridDim.y, b / (gridDim.x * gridDim.y)};
        run_block(Order(order));
    }
    return -1;
}

}  // namespace host

OURS inline void __syncthreads() {
    host::threads[host::current].waits = true;
    host::yield();
}

inline void __threadfence() {}

// Atomic as it stands: a turn ends before it, and not between its load and its store.
template <class T>
OURS T atomicAdd(T* address, T value) {
    host::yield();
    T before = *address;
    *address = before + value;
    return before;
}

inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }

extern "C" {
#define READ(n) \
    OURS void __tsan_read##n(void*) {} \
    OURS void __tsan_unaligned_read##n(void*) {}
#define WRITE(n) \
    OURS void __tsan_write##n(void*) { host::yield(); } \
    OURS void __tsan_unaligned_write##n(void*) { host::yield(); }
READ(1) READ(2) READ(4) READ(8) READ(16)
WRITE(1) WRITE(2) WRITE(4) WRITE(8) WRITE(16)
OURS void __tsan_read_range(void*, long) {}
OURS void __tsan_write_range(void*, long) { host::yield(); }
OURS void __tsan_func_entry(void*) {}
OURS void __tsan_func_exit() {}
OURS void __tsan_init() {}
}
