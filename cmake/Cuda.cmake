# The CUDA toolkit, when MEDLEY_CUDA is on. Programs link its runtime statically and take driver symbols at run time
# (cudaGetDriverEntryPointByVersion), so that they start on a machine without a GPU.
if(MEDLEY_CUDA)
  # Named before enable_language(CUDA), which otherwise compiles for a default architecture. Targets set their own.
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()

# medley_cuda_library(<name> ARCHITECTURES ... SOURCES ... DEPS ...)
function(medley_cuda_library name)
  cmake_parse_arguments(A "" "" "ARCHITECTURES;SOURCES;DEPS" ${ARGN})
  add_library(medley_${name} STATIC ${A_SOURCES})
  set_target_properties(medley_${name} PROPERTIES
    CUDA_ARCHITECTURES "${A_ARCHITECTURES}" CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED OFF)
  target_compile_options(medley_${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20  # CMake 3.25 does not pass CMAKE_CUDA_STANDARD 20 on
      -lineinfo --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-Wno-restrict,-Wno-missing-field-initializers>)
  # fmt 9 takes nvcc for a compiler without constexpr.
  target_compile_definitions(medley_${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
  target_link_libraries(medley_${name} PUBLIC medley_flags CUDA::cudart_static ${A_DEPS})
endfunction()
