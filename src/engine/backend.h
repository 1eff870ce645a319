// Where a model runs.
#pragma once

#include <string>

#include "tensor/tensor.h"

namespace medley {

// "cpu", "cuda" or "auto": the CUDA device when there is one. Throws Error saying what is missing for "cuda".
Device choose_device(const std::string& backend);

}  // namespace medley
