package evaluation

import (
	"fmt"
	"math"
	"strconv"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// Validation measures the loss on the validation set of the run, for a model that was not trained; a training measures
// it itself.
type Validation struct {
	Batches int // number of batches; 0 means all
}

var _ Evaluation = (*Validation)(nil)

// ID implements [Evaluation].
func (e *Validation) ID() string { return identify("validation", e) }

// Metrics implements [Evaluation]: the names are those of a training's summary.
func (e *Validation) Metrics() []Metric { return []Metric{{"val_loss", false}, {"val_ppl", false}} }

// Arguments implements [Evaluation].
func (e *Validation) Arguments(run, _ string) []string {
	return []string{"eval", run, "--batches", strconv.Itoa(e.Batches), "--json", "--lifeline"}
}

// Read implements [Evaluation].
func (e *Validation) Read(out vfs.Path) (map[string]float64, error) {
	path := out.Join(OutputFile)
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

// Rows implements [Evaluation]. The run knows its validation set by its hash.
func (e *Validation) Rows() (string, error) { return "", nil }

// Check implements [Evaluation].
func (e *Validation) Check() error { return nil }
