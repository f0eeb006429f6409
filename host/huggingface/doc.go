// Package huggingface reads checkpoints in the layout of the Hugging Face hub: a directory
// with config.json and the weights as safetensors, one file or several with an index. A
// checkpoint becomes the settings and parameters of a model of host/model. For those that
// write one, [Layout] says where each parameter goes, and [Config.Encode] what config.json says.
//
// Families of models (Llama and Mistral, OLMo 2, Qwen3) have a file each, with the names of
// their tensors as a table. What is not understood is refused, by the name of the key or
// tensor, and everything that is wrong is reported at once ([Error], [Report]).
//
// Weights are read one parameter at a time, so that a checkpoint is never in memory as a
// whole. Tokenizers are not read here: see host/data/tokenizer.
package huggingface
