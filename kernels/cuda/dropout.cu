#include "kernels/cuda/dropout.h"

namespace sixfold::kernels::cuda {

void dropout_forward(Context& context, const DropoutSite& site, const TokenRows& rows, const Tensor& x,
                     const Tensor& residual, const Tensor& y) {
  const DropoutMask mask(site);
  const int64_t num_rows = rows.num_rows * rows.seq_len, channels = checked_dim(x, 2, 1, "dropout x");
  dispatch_float(x.dtype(), [&](auto element) {
    using T = decltype(element);
    if (rows.channel_offset % 4 == 0 && takes_packs(channels, {x.raw(), residual.raw(), y.raw()})) {
      for_each_row<RowBy::Warp>(context, num_rows, dropout_rows<T, 4>(mask, rows, x, residual, y));
    } else {
      for_each_row<RowBy::Warp>(context, num_rows, dropout_rows<T, 1>(mask, rows, x, residual, y));
    }
  });
}

void dropout_backward(Context& context, const DropoutSite& site, const TokenRows& rows, const Tensor& dy,
                      const Tensor& dx) {
  cuda::dropout_forward(context, site, rows, dy, Tensor(), dx);
}

}  // namespace sixfold::kernels::cuda
