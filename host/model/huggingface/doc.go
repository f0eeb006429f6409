// Package huggingface reads checkpoints in the layout of the Hugging Face hub: a directory with
// config.json and the weights as safetensors, in one file or in several with an index. A checkpoint
// becomes the settings and parameters of a model of host/model. For writers of checkpoints,
// [Layout] says where each parameter goes, and a [Description] holds config.json and
// generation_config.json: those of the checkpoint that a model was made from, or new ones.
//
// Each family of models (Llama, Mistral, OLMo 2, Qwen3) has a table of the names of its tensors.
// What is not understood is refused, with the name of the key or tensor, and all problems are
// reported at once ([Error], [Report]).
//
// Weights are read one parameter at a time, so that a checkpoint is never in memory as a whole.
// Tokenizers are not read here: see host/data/tokenizer.
package huggingface
