// Package trained is a trained model in use: a checkpoint of a run with the run's own quantizers or with others, or a
// Hugging Face checkpoint as it is. Open finds the plugins, data and tokenizer of a run wherever they are now; the [Model]
// then evaluates texts, scores continuations, generates, and gives package export what it writes. Import makes a run
// directory of a Hugging Face checkpoint. How a model is trained, and how one is quantized after that, is the business of
// host/train and host/deploy/quantize.
package trained
