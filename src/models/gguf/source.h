// A GGUF file (or the files of a split one) as a model's source.
#pragma once

#include "models/model_source.h"

namespace medley {

std::unique_ptr<ModelSource> open_gguf_model(const std::filesystem::path& path);

}  // namespace medley
