#include "examples/train_gpt/run_data.h"

namespace sixfold::train_gpt {

RunData load_data(const Plan& plan) {
  const Options& options = plan.options;
  const train::DataFormat format = train::parse_data_format(options.data_format);
  const train::DataSource source{options.data, format, plan.model.vocab_size, "--data"};
  const train::DataSource validation{options.val_data, format, plan.model.vocab_size, "--val-data"};
  const bool holds_out = options.val_data.empty();

  RunData data;
  data.corpus = train::load_corpus(source);
  data.text = train::split_corpus(data.corpus.tokens(), holds_out ? options.val_fraction : 0, plan.model.seq_len,
                                  options.global_batch, source.name());
  if (!holds_out) {
    data.validation = train::load_corpus(validation);
    data.text = train::with_validation(data.text, data.validation.tokens(), plan.model.seq_len, validation.name());
  }
  return data;
}

}  // namespace sixfold::train_gpt
