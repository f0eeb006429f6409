package memory_test

import (
	"fmt"

	"github.com/cage-qat/cage/host/train/memory"
)

func Example() {
	m := memory.Model{
		Layers: 12, Width: 768, Hidden: 2048, Heads: 12, Vocabulary: 32000, Context: 1024, Batch: 32,
		Parameters: 134e6, Quantized: 85e6, States: 268e6,
	}
	fmt.Println(memory.Check(m, &memory.Available{Bytes: 16e9, Limit: "free memory of the machine"}))
	// Output:
	// this needs about 58.2 GB of memory, 16 GB are there (free memory of the machine)
	//   27.4 GB    activations of the blocks
	//   22.9 GB    attention scores, which grow with the square of the context
	//   4.61 GB    logits of the vocabulary
	//   1.07 GB    gradients, and parameters after the step
	//   1.07 GB    states of the optimizer
	// what would fit: train.batch = 4 with train.accumulate = 8 (7 is the largest that fits); or model.context = 329
}
