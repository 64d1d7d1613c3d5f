# Kernels that are compiled once per instruction set. A generated source file includes the vocabulary
# of the set (kernels/cpu/simd) and one part, which is written in that vocabulary and defines its table
# as HEARTH_OF_SET(name): kMatmul becomes kMatmulAvx2. Which set runs is decided at start
# (op_table.cpp).

# Full optimization also where the rest is built for debugging. Sanitized, the unrolled code takes
# minutes to compile at -O3.
set(optimize -O3)
if(HEARTH_SANITIZE)
  set(optimize -O1)
  if(HEARTH_SANITIZE STREQUAL "address" AND NOT HEARTH_SANITIZE_ALL)
    # Bounds stay checked. The rest takes three quarters of these files' compile time.
    list(APPEND optimize -fno-sanitize=undefined)
  endif()
endif()
# Checks by calls compile in less than half the time of inline ones, and run up to twenty times as long: for the
# products of the sets that this machine does not choose, which few tests select.
set(rarely_run_Avx2)
set(rarely_run_Avx2Vnni)
set(rarely_run_Avx512)
set(rarely_run_Avx512Vnni)
if(HEARTH_SANITIZE STREQUAL "address" AND NOT HEARTH_SANITIZE_ALL)
  set(chosen Avx2)
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo cpu_flags REGEX "^flags" LIMIT_COUNT 1)
    if(cpu_flags MATCHES " avx512f .*avx512_vnni")
      set(chosen Avx512Vnni)
    elseif(cpu_flags MATCHES " avx512f ")
      set(chosen Avx512)
    elseif(cpu_flags MATCHES " avx_vnni ")
      set(chosen Avx2Vnni)
    endif()
  endif()
  foreach(name Avx2 Avx2Vnni Avx512 Avx512Vnni)
    if(NOT name STREQUAL chosen)
      set(rarely_run_${name} --param=asan-instrumentation-with-call-threshold=0)
    endif()
  endforeach()
endif()
if(HEARTH_FUZZ)  # no input reaches them there
  set(optimize -O1 -fno-sanitize=all)
endif()

set(HEARTH_SIMD_SOURCES)
set(matmul matmul/body matmul/offset_body matmul/min_body matmul/wide_body matmul/halves_body)
set(others attention/body rows/body state/body)

# hearth_instruction_set(NAME VOCABULARY FLAGS ... PARTS ...)
function(hearth_instruction_set name vocabulary)
  cmake_parse_arguments(ARG "" "" "FLAGS;PARTS" ${ARGN})
  foreach(part ${ARG_PARTS})
    string(REPLACE "/" "_" file ${part})
    string(TOLOWER ${CMAKE_CURRENT_BINARY_DIR}/cpu/${file}_${name}.cpp file)
    file(CONFIGURE OUTPUT ${file} CONTENT [=[
#define HEARTH_OF_SET(table) table##@name@
#include "kernels/cpu/simd/@vocabulary@.h"
// The vocabulary must come before the code that uses it.
#include "kernels/cpu/@part@.h"
]=] @ONLY)
    set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${optimize};${ARG_FLAGS}")
    list(APPEND HEARTH_SIMD_SOURCES ${file})
  endforeach()
  set(HEARTH_SIMD_SOURCES ${HEARTH_SIMD_SOURCES} PARENT_SCOPE)
endfunction()

hearth_instruction_set(Plain plain PARTS ${matmul} ${others})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(avx2 -mavx2 -mfma -mf16c)
  # g++ 12 warns of its own intrinsics: _mm512_undefined_ps is "used uninitialized" (PR 105593).
  set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq
    -Wno-uninitialized -Wno-maybe-uninitialized)
  hearth_instruction_set(Avx2 avx2 FLAGS ${avx2} ${rarely_run_Avx2} PARTS ${matmul} ${others})
  hearth_instruction_set(Avx2Vnni avx2 FLAGS ${avx2} -mavxvnni ${rarely_run_Avx2Vnni} PARTS ${matmul})
  hearth_instruction_set(Avx2Vnni avx2 FLAGS ${avx2} -mavxvnni PARTS attention/body)
  hearth_instruction_set(Avx512 avx512 FLAGS ${avx512} ${rarely_run_Avx512} PARTS ${matmul})
  hearth_instruction_set(Avx512 avx512 FLAGS ${avx512} PARTS ${others})
  hearth_instruction_set(Avx512Vnni avx512 FLAGS ${avx512} -mavx512vnni ${rarely_run_Avx512Vnni}
    PARTS ${matmul})
  hearth_instruction_set(Avx512Vnni avx512 FLAGS ${avx512} -mavx512vnni PARTS attention/body)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  # Scheduled before registers are chosen, loads move so far ahead that sums are spilled for them.
  set(neon -fno-schedule-insns)
  hearth_instruction_set(Neon neon FLAGS ${neon} PARTS ${matmul} ${others})
  hearth_instruction_set(NeonDot neon FLAGS ${neon} -march=armv8.2-a+dotprod PARTS ${matmul})
endif()
