// TS_PORTABLE marks small functions that kernels of every device share: one source, the same bits.
#pragma once

#ifdef __CUDACC__
#define TS_PORTABLE __host__ __device__
#else
#define TS_PORTABLE
#endif
