# One static library a folder, and one test program a folder.

# Warnings that every target of the project compiles with.
add_library(medley_flags INTERFACE)
target_compile_options(medley_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>>  # g++ 12 reports overlapping copies inside std::string that cannot happen (GCC bug 105651)
  $<$<AND:$<BOOL:${MEDLEY_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>
  # One rule of rounding everywhere: an a*b+c is fused only where the source says fma. Otherwise the same kernel,
  # compiled into two loops, may round differently, and a request's bits would depend on its company.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
# Debug and sanitizer builds check indices of containers and accesses of optionals.
target_compile_definitions(medley_flags INTERFACE $<$<CONFIG:Debug>:_GLIBCXX_ASSERTIONS>)
target_include_directories(medley_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)

# medley_library(<folder> SOURCES ... DEPS <folders or imported targets>)
function(medley_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_library(medley_${name} STATIC ${A_SOURCES})
  target_link_libraries(medley_${name} PUBLIC medley_flags ${A_DEPS})
endfunction()

# medley_tests(<folder> SOURCES ... DEPS ...): one program, its cases listed to ctest one by one.
function(medley_tests name)
  if(NOT MEDLEY_TESTS)
    return()
  endif()
  cmake_parse_arguments(A "" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  if(CMAKE_BUILD_TYPE STREQUAL "Debug")  # under a sanitizer, on a busy machine
    math(EXPR A_TIMEOUT "${A_TIMEOUT} * 8")
  endif()
  add_executable(${name}_test ${A_SOURCES})
  target_link_libraries(${name}_test PRIVATE ${A_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name}_test PRIVATE MEDLEY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name}_test TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT ${A_TIMEOUT})
endfunction()
