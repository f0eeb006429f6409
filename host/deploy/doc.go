// Package deploy is the layer that uses trained models. It has no code of its own. Its packages:
//
//	quantize   quantization after training, block by block, from a run or a published model to a run
//	posttrain  quantization of one matrix (RTN, GPTQ), and its settings
//	trained    loads models for evaluation, generation, tasks, RULER, conversations and export;
//	           imports published models
//	tasks      evaluation tasks as in lm-eval: prompts, scores, saved answers
//	ruler      the benchmark RULER: its prompts, and scores of answers
//	export     formats of other programs
//
// A model is read from a run directory or a Hugging Face checkpoint, with the programs of its
// quantizers (trained). The results are scores and texts (tasks, ruler), another run directory
// (quantize), or files for other programs (export).
package deploy
