package trained

import (
	"fmt"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
)

// Record is the provenance that a model's directory records.
type Record struct {
	provenance.Record
	// Posttrained describes the quantization after training; nil if there was none.
	Posttrained *Posttrained `json:"posttrained,omitempty"`
}

// ReadRecord reads the record of a run directory.
func ReadRecord(dir rundir.Dir) (*Record, error) {
	r := &Record{}
	return r, provenance.ReadTo(dir, r)
}

// PyTorch is the method of a model that cage-torch has trained, whose weights the import quantized.
const PyTorch = "pytorch"

// Posttrained describes how a model was quantized after its training.
type Posttrained struct {
	posttrain.Settings
	Calibration *Calibration       `json:"calibration,omitempty"`
	Activations bool               `json:"activations"`
	Matrices    []posttrain.Matrix `json:"matrices"`
}

// Calibration describes the calibration texts of a quantization.
type Calibration struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"` // of the tokens
	// Kind is config.KindText or config.KindChat.
	Kind string `json:"kind"`
	// Separate reports whether tokens attended only to their own document.
	Separate bool  `json:"separate"`
	Windows  int   `json:"windows"`
	Context  int   `json:"context"`
	Tokens   int64 `json:"tokens"` // in all windows, without padding
	Seed     int64 `json:"seed"`
}

// String describes the calibration in words.
func (c *Calibration) String() string {
	text := fmt.Sprintf("%d sequences of %d tokens from %s", c.Windows, c.Context, c.Path)
	switch {
	case c.Kind == config.KindChat:
		text += fmt.Sprintf(": conversations that do not attend to each other, with %d tokens in all",
			c.Tokens)
	case c.Separate:
		text += ": documents that do not attend to each other"
	}
	return text
}

// ScaleName returns the name under which a checkpoint stores the scales of a quantized weight.
func ScaleName(param string) string { return "scale/" + param }

// posttrained returns a weight for the export of a run that was quantized after training: the
// stored weight is Ŵ, and the checkpoint also has its scales.
func (t *Model) posttrained(w *posttrain.Matrix) (*export.Quantized, error) {
	value, err := t.latent(w.Name)
	if err != nil {
		return nil, err
	}
	q := &export.Quantized{Value: value, Rotation: w.Rotation, Grid: w.Grid}
	if q.Rotation > 1 {
		return q, nil
	}
	name := ScaleName(w.Name)
	if !t.file.Has(name) {
		return q, nil
	}
	scale, err := t.file.Tensor(name)
	if err != nil {
		return nil, err
	}
	q.ScaleShape = scale.Shape
	q.Scale, err = safetensors.Values[float32](scale)
	return q, err
}
