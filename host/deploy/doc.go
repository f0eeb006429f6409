// Package deploy is the layer of what is done with a trained model. It holds no code of its own. Its packages:
//
//	quantize   quantization after training, block by block, from a run or a published model to a run
//	posttrain  how one matrix is rounded (RTN, GPTQ), and the settings of that
//	trained    a model in use: opened, evaluated, asked (tasks, RULER, messages), exported; and the import of a published one
//	tasks      evaluation tasks as lm-eval asks and judges them, and their saved answers
//	ruler      the benchmark RULER: its prompts, and scores of answers
//	export     formats of other programs
//
// A model comes in as a run directory or a checkpoint of Hugging Face, becomes weights with the programs of their quantizers
// (trained), and leaves as scores and texts (tasks, ruler), as another run directory (quantize), or as files of other
// programs (export).
package deploy
