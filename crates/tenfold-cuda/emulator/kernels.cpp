// All kernels, compiled as C++, and how to find them by name.

#include "cuda.h"

#define DYNAMIC_SHARED(name) unsigned char *name = static_cast<unsigned char *>(emulator::block.shared)

#include "kernels.inc"

#include <cstring>
#include <utility>

namespace emulator {

struct Entry {
    const char *name;
    void (*kernel)(void **);
    // Of its arguments.
    std::size_t bytes;
};

template <auto F> struct Call;
template <class... A, void (*F)(A...)> struct Call<F> {
    template <std::size_t... I> static void with(void **p, std::index_sequence<I...>) {
        (void)p;
        F(*static_cast<std::remove_reference_t<A> *>(p[I])...);
    }
    static void run(void **p) { with(p, std::index_sequence_for<A...>{}); }
    static constexpr std::size_t bytes = (sizeof(std::remove_reference_t<A>) + ... + 0);
};

const Entry *find(const char *name) {
    static const Entry all[] = {
#undef KERNEL
#define KERNEL(name) {#name, Call<name>::run, Call<name>::bytes},
#include "names.inc"
#undef KERNEL
    };
    for (const Entry &e : all)
        if (std::strcmp(e.name, name) == 0) return &e;
    return nullptr;
}

} // namespace emulator
