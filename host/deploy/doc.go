// Package deploy is the wing of what is done with a trained model. It holds no code of its own. Its rooms:
//
//	quantize   quantization after training, from a run or a published model to a run that holds the result
//	trained    a model in use: opened, evaluated, exported; and the import of a published one
//	query      what a model is asked: tasks, prompts of RULER, messages, sequences to score
//	tasks      evaluation tasks as lm-eval asks and judges them; tasks/ask keeps the answers
//	ruler      the benchmark RULER: its prompts, and scores of answers
//	export     formats of other programs; export/readback reads them again to verify them
//	posttrain  how a matrix is rounded (RTN, GPTQ); posttrain/layerwise runs it block by block
//
// A model comes in as a run directory or a checkpoint of Hugging Face, becomes weights with the programs of their quantizers
// (trained), and leaves as scores and texts (tasks, ruler), as another run directory (quantize), or as files of other
// programs (export).
package deploy
