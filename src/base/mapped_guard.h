// The SIGBUS handler of mapped files (mapped_file.h says what it does).
#pragma once

#include <cstddef>

namespace medley::mapped_guard {

// Enters a mapping and returns its number for the calls below; -1 when the table is full (it is then not guarded).
int add(const std::byte* begin, size_t bytes);
void remove(int guard);
bool damaged(int guard);

}  // namespace medley::mapped_guard
