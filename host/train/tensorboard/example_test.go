package tensorboard_test

import (
	"fmt"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/tensorboard"
)

func ExampleOf() {
	record := metrics.Record{Step: 10, Loss: 2.5, LR: 0.001, Lambda: metrics.Some(0), ValLoss: metrics.Some(2.75)}
	for _, s := range tensorboard.Of(record) {
		fmt.Printf("%s %g\n", s.Tag, s.Value)
	}
	// Output:
	// train/loss 2.5
	// train/learning rate 0.001
	// correction/λ 0
	// speed/tokens 0
	// speed/seconds 0
	// validation/loss 2.75
}
