# What all of hearth's targets share.

add_library(hearth_warnings INTERFACE)
target_compile_options(hearth_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Werror>)
# Contraction of a*b+c into one rounding is a decision of each kernel (std::fma), never of the
# optimizer: results compare with ==.
target_compile_options(hearth_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off -fno-omit-frame-pointer>)

# Sanitized builds are for running tests: -Og compiles in a quarter of the time of -O2, and line numbers
# are all that a report needs.
if(NOT HEARTH_SANITIZE STREQUAL "")
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-Og -g1")
endif()
if(HEARTH_SANITIZE STREQUAL "address")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined>
                      # What these find ends in a fault or in AddressSanitizer's report as well, and they
                      # took a quarter of the compiler's time.
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null,object-size,vptr>)
  add_link_options(-fsanitize=address,undefined)
elseif(HEARTH_SANITIZE STREQUAL "thread")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  add_link_options(-fsanitize=thread)
elseif(NOT HEARTH_SANITIZE STREQUAL "")
  message(FATAL_ERROR "HEARTH_SANITIZE: met '${HEARTH_SANITIZE}', want address, thread or empty")
endif()

# Coverage of our own code steers the fuzzer.
if(HEARTH_FUZZ)
  # Some targets silence warnings that only g++ has.
  add_compile_options(-fsanitize=fuzzer-no-link -Wno-unknown-warning-option)
endif()

# hearth_library(NAME SOURCES ... PUBLIC ... PRIVATE ...): target hearth_NAME, alias hearth::NAME.
function(hearth_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(hearth_${name} STATIC ${ARG_SOURCES})
  add_library(hearth::${name} ALIAS hearth_${name})
  target_include_directories(hearth_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(hearth_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} hearth_warnings)
endfunction()

# hearth_test(NAME LABELS ... SOURCES ... LINK ...): a doctest program whose cases become ctest
# entries. A case that prints "[hearth-skip]" shows as skipped (see tests/skip.h).
function(hearth_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABELS;SOURCES;LINK" ${ARGN})
  # What ends a test that hangs; no test asserts a time. Full counts (HEARTH_TEST_FULL=1) on a busy
  # machine take more than five minutes.
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  add_executable(${name} ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/doctest_main.cpp)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} doctest::doctest hearth_warnings)
  # Tests are short programs around sanitized libraries. UBSan over their own lines took a third of a
  # sanitized build.
  if(HEARTH_SANITIZE STREQUAL "address")
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
  target_compile_definitions(${name} PRIVATE
    HEARTH_SOURCE_DIR="${PROJECT_SOURCE_DIR}" HEARTH_BINARY_DIR="${CMAKE_BINARY_DIR}")
  doctest_discover_tests(${name}
    TEST_PREFIX "${name}: "
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
               SKIP_REGULAR_EXPRESSION "\\[hearth-skip\\]")
endfunction()
