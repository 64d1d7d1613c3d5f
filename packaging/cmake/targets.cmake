# What all of hearth's targets share.

add_library(hearth_warnings INTERFACE)
target_compile_options(hearth_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Werror>)
# Contraction of a*b+c into one rounding is a decision of each kernel (std::fma), never of the
# optimizer: results compare with ==.
target_compile_options(hearth_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off -fno-omit-frame-pointer>)
# Units name files by their absolute paths. In messages they begin at the root, and the compiler cache finds the same
# unit in another checkout.
target_compile_options(hearth_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)

# Conversions that may change a value are written out, except in tests. Signs are not warned of: counts are
# int32_t, and containers are indexed by them.
set(of_tests $<FILTER:$<PATH:RELATIVE_PATH,$<TARGET_PROPERTY:SOURCE_DIR>,${PROJECT_SOURCE_DIR}>,INCLUDE,^tests>)
target_compile_options(hearth_warnings INTERFACE
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<STREQUAL:${of_tests},>>:-Wconversion>)

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
  if(NOT HEARTH_SANITIZE_ALL)  # a third of the compiler's time
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-address-use-after-scope>)
  endif()
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

# Most of what the compiler does for a short file it does for headers and templates that the next file
# includes, too. So files are compiled several to a unit, which halves the build. A name in an unnamed
# namespace is therefore unique in its library; a file that cannot keep to that (SEPARATE) is a unit of its
# own. The preset `dev` compiles each file alone: after a change there is less to rebuild.
option(HEARTH_UNITY "Compile several source files as one unit" ON)
function(hearth_unity target)
  if(HEARTH_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# hearth_library(NAME SOURCES ... PUBLIC ... PRIVATE ...): target hearth_NAME, alias hearth::NAME.
function(hearth_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(hearth_${name} STATIC ${ARG_SOURCES})
  add_library(hearth::${name} ALIAS hearth_${name})
  target_include_directories(hearth_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(hearth_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} hearth_warnings)
  hearth_unity(hearth_${name})
endfunction()

# hearth_test(NAME LABELS ... SOURCES ... SEPARATE ... LINK ... [FIXTURE ...]): a doctest program whose cases become
# ctest entries, run after the fixture's. SEPARATE names sources that are compiled alone. A case that prints
# "[hearth-skip]" shows as skipped (see tests/skip.h).
function(hearth_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;FIXTURE" "LABELS;SOURCES;SEPARATE;LINK" ${ARGN})
  # What ends a test that hangs; no test asserts a time. Full counts (HEARTH_TEST_FULL=1) on a busy
  # machine take more than five minutes.
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
    if(HEARTH_SANITIZE AND HEARTH_SANITIZE_ALL)
      set(ARG_TIMEOUT 2700)  # all that ASan checks
    endif()
  endif()
  add_executable(${name} ${ARG_SOURCES} ${ARG_SEPARATE})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} hearth_doctest_main hearth_test_paths doctest::doctest hearth_warnings)
  hearth_unity(${name})
  set_source_files_properties(${ARG_SEPARATE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # Tests are compiled for speed of compiling: asserts are calls, and -O1 is enough around optimized libraries. That
  # takes a third of their compiler time.
  target_compile_definitions(${name} PRIVATE DOCTEST_CONFIG_SUPER_FAST_ASSERTS)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  # Tests are short programs around sanitized libraries. UBSan over their own lines took a third of a
  # sanitized build.
  if(HEARTH_SANITIZE STREQUAL "address")
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
  set(cases ${CMAKE_CURRENT_BINARY_DIR}/${name}_cases.cmake)
  get_target_property(emulator ${name} CROSSCOMPILING_EMULATOR)
  if(NOT emulator)
    set(emulator)
  endif()
  add_custom_command(TARGET ${name} POST_BUILD BYPRODUCTS ${cases} VERBATIM
    COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${name}> -D "RUN_BY=${emulator}" -D NAME=${name}
            -D "LABEL=${ARG_LABELS}" -D TIMEOUT=${ARG_TIMEOUT} -D "FIXTURE=${ARG_FIXTURE}" -D OUT=${cases}
            -P ${PROJECT_SOURCE_DIR}/packaging/cmake/doctest_cases.cmake)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}_include.cmake
    "if(EXISTS [==[${cases}]==])\n  include([==[${cases}]==])\n"
    "else()\n  add_test(${name}_NOT_BUILT ${name}_NOT_BUILT)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}_include.cmake)
endfunction()
