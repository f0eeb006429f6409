// Package deploy is the layer that uses trained models. It has no code of its own. Its packages:
//
//	quantize   quantization after training, block by block, from a run or a published model to a run
//	posttrain  quantization of one matrix (RTN, GPTQ), and its settings
//	trained    loads models for evaluation, generation, tasks, RULER, conversations and export; imports published models
//	tasks      evaluation tasks as in lm-eval: prompts, scores, saved answers
//	ruler      the benchmark RULER: its prompts, and scores of answers
//	export     formats of other programs
//
// A model comes in as a run directory or a checkpoint of Hugging Face, becomes weights with the programs of their quantizers
// (trained), and leaves as scores and texts (tasks, ruler), as another run directory (quantize), or as files of other
// programs (export).
package deploy
