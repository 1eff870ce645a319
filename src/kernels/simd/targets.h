// Highway's settings, the same in every unit of this folder: include it before Highway.
#pragma once

// Vectors stand in arrays here, so their length must be known: scalable vectors fall back to 128-bit NEON.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
