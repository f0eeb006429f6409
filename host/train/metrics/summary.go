package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/vfs"
)

// Summary is the result of a run. A nil field was not measured.
type Summary struct {
	Name       string `json:"name"`              // name of the run
	Completed  bool   `json:"completed"`         // whether all steps were done; false for a run that was stopped
	Stopped    Stop   `json:"stopped,omitempty"` // why a run that is not completed ended
	Error      string `json:"error,omitempty"`   // the error that ended it, unless somebody asked it to stop
	Steps      int    `json:"steps"`             // optimizer steps done
	TotalSteps int    `json:"total_steps"`       // optimizer steps asked for
	Tokens     int64  `json:"tokens"`            // tokens that were learned from
	Parameters int64  `json:"parameters"`        // parameters of the model

	// NonEmbedding counts the parameters outside the embedding and the head: the N of
	// scaling laws.
	NonEmbedding int64 `json:"non_embedding_parameters,omitempty"`

	Seconds         Number  `json:"seconds"`                     // seconds of steps, as in records
	TokensPerSecond *Number `json:"tokens_per_second,omitempty"` // mean over the run
	TrainLoss       *Number `json:"train_loss,omitempty"`        // of the last step
	ValLoss         *Number `json:"val_loss,omitempty"`          // final, over the whole validation set, unless train.final_eval_batches is set
	ValPPL          *Number `json:"val_ppl,omitempty"`           // exp(ValLoss)
	Distance        *Number `json:"distance,omitempty"`          // problems: √((x−x*)ᵀA(x−x*)) at the end
	ErrorNorm2      *Number `json:"error_norm2,omitempty"`       // Σ‖x − Q(x)‖² before the last step, as in the last record
	ErrorRel        *Number `json:"error_rel,omitempty"`         // the same over Σ‖x‖²
	Skipped         int     `json:"skipped"`                     // number of steps left out because something was not finite
	Uncorrected     int     `json:"uncorrected,omitempty"`       // corrections of single weights left out because x − Q(x) was not finite

	Sources []Epochs `json:"sources,omitempty"` // sources of a mixture, in its order

	Dir string `json:"dir"` // the run directory
	// Method names the method, and Settings repeats its own settings.
	Method   string         `json:"method"`
	Settings map[string]any `json:"method_settings,omitempty"`
	// Counts are what the method has counted, by name.
	Counts map[string]int64 `json:"counts,omitempty"`
	// StartSeconds is the time from the call to the first step. PluginSeconds is the part
	// of it until the plugins had started and returned their programs.
	StartSeconds  float64 `json:"start_seconds"`
	PluginSeconds float64 `json:"plugin_seconds"`
}

// Epochs says how many epochs of a source of its data a run has gone through.
type Epochs struct {
	Path   string  `json:"path"`
	Epochs float64 `json:"epochs"`
}

// Stop is why a run ended before its last step.
type Stop string

// The reasons in a [Summary] that is not completed. A process that was killed writes
// none.
const (
	Interrupted Stop = "interrupted" // by a signal, or after the number of steps that was asked for
	Diverged    Stop = "diverged"    // its loss or gradient was not finite
	Failed      Stop = "failed"
)

// WriteSummary writes a summary to path as indented JSON, atomically.
func WriteSummary(path vfs.Path, summary Summary) error { return atomicfile.WriteJSON(path, summary) }

// maxSummary is far more than any summary has, in bytes.
const maxSummary = 1 << 20

// ReadSummary reads the summary at path.
func ReadSummary(path vfs.Path) (s Summary, err error) {
	err = readSummary(path, &s)
	return s, err
}

func readSummary(path vfs.Path, to any) error {
	text, err := path.ReadSmallFile(maxSummary)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	if err := plainjson.Unmarshal(text, to); err != nil {
		return fmt.Errorf("metrics: %s: %w", path, err)
	}
	return nil
}

// countsPrefix begins the names of what a method has counted.
const countsPrefix = "counts."

// ReadNumbers returns every number in the summary at path by its name, and whether the
// run is complete. If the file does not exist, the run is still in progress: there are no
// numbers, and it is not complete.
func ReadNumbers(path vfs.Path) (numbers map[string]float64, completed bool, err error) {
	var fields map[string]json.RawMessage
	if err := readSummary(path, &fields); errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, err
	}
	numbers = map[string]float64{}
	for name, raw := range fields {
		var n Number
		if n.UnmarshalJSON(raw) == nil {
			numbers[name] = float64(n)
		}
	}
	var counts map[string]int64
	if raw := fields["counts"]; raw != nil && json.Unmarshal(raw, &counts) == nil {
		for name, n := range counts {
			numbers[countsPrefix+name] = float64(n)
		}
	}
	return numbers, string(fields["completed"]) == "true", nil
}
