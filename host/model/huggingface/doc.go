// Package huggingface reads checkpoints in the layout of the Hugging Face Hub: a directory with
// config.json and the weights as safetensors, in one file or in several with an index. A checkpoint
// becomes the settings and parameters of a model in package host/model. For writers of checkpoints,
// [Layout] maps parameters to tensors, and a [Description] holds config.json and
// generation_config.json: those of the checkpoint that the model comes from, or new ones.
//
// Each family of models, such as Llama or Qwen3, has a table of its tensor names. Unknown
// keys and tensors are errors, and all problems are reported at once ([Error], [Report]).
//
// Weights are read one parameter at a time, so that a checkpoint is never in memory as a whole.
// Tokenizers are read by host/data/tokenizer.
package huggingface
