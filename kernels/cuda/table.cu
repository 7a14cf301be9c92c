#include "kernels/cuda/table.h"

namespace sixfold::kernels::cuda {

const KernelTable& kernel_table() {
#define SIXFOLD_ENTRY(name) &cuda::name,
  static constexpr KernelTable table = {SIXFOLD_KERNELS(SIXFOLD_ENTRY)};
#undef SIXFOLD_ENTRY
  return table;
}

}  // namespace sixfold::kernels::cuda
