package study

import (
	"fmt"
	"math"
	"strconv"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// validationLoss measures the loss on the validation set of the run, for a model that was not
// trained; a training measures it itself.
type validationLoss struct {
	Batches int // number of batches; 0 means all
}

var _ evaluation = (*validationLoss)(nil)

// ID implements [evaluation].
func (e *validationLoss) ID() string { return identify("validation", e) }

// Metrics implements [evaluation]: the names are those of a training's summary.
func (e *validationLoss) Metrics() []measure {
	return []measure{{"val_loss", false}, {"val_ppl", false}}
}

// Arguments implements [evaluation].
func (e *validationLoss) Arguments(run, _ string) []string {
	return []string{"eval", run, "--batches", strconv.Itoa(e.Batches), "--json", "--lifeline"}
}

// Read implements [evaluation].
func (e *validationLoss) Read(out vfs.Path) (map[string]float64, error) {
	path := out.Join(outputFile)
	text, err := path.ReadFile()
	if err != nil {
		return nil, err
	}
	var output struct {
		Loss *metrics.Number `json:"loss"`
	}
	if err := plainjson.Unmarshal(text, &output); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if output.Loss == nil {
		return nil, fmt.Errorf("%s: no loss", path)
	}
	loss := float64(*output.Loss)
	return map[string]float64{"val_loss": loss, "val_ppl": math.Exp(loss)}, nil
}

// Rows implements [evaluation]. The run knows its validation set by its hash.
func (e *validationLoss) Rows() (string, error) { return "", nil }

// Check implements [evaluation].
func (e *validationLoss) Check() error { return nil }
