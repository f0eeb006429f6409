// Package deploy is the wing of what is done with a trained model. It holds no code of its own. Its rooms:
//
//	tasks      evaluation tasks as lm-eval asks and judges them; tasks/ask keeps the answers
//	ruler      the benchmark RULER: its prompts, and scores of answers
//	export     formats of other programs; export/readback reads them again to verify them
//	posttrain  quantization after training (RTN, GPTQ); posttrain/layerwise runs it block by block
//
// A model comes in as weights in full precision with the programs of its quantizers, and leaves as scores or as files.
package deploy
