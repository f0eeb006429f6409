// Package deploy is the layer that uses trained models. It has no code of its own, only packages:
//
//	quantize   quantizes trained models block by block; the result is a run directory
//	posttrain  quantizes a single matrix (RTN, GPTQ), and defines the settings
//	trained    loads models for evaluation, generation, tasks, RULER, conversations and export;
//	           imports published models
//	tasks      runs evaluation tasks as lm-eval does: prompts, scores, saved answers
//	ruler      implements the RULER benchmark: makes its prompts and scores answers
//	export     writes models in the formats of other programs
//
// A model is read from a run directory or a Hugging Face checkpoint, together with the programs of
// its quantizers (trained). The results are scores and texts (tasks, ruler), another run directory
// (quantize), or files for other programs (export).
package deploy
