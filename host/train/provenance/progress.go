package provenance

import (
	"errors"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/checkpoint"
)

// Progress is the part of a run's state that is not tensors. It is saved in
// checkpoints.
type Progress struct {
	Step    int     `json:"step"`    // steps done, skipped ones included
	Skipped int     `json:"skipped"` // steps that were not finite
	Tokens  int64   `json:"tokens"`
	Seconds float64 `json:"seconds"`
	// Uncorrected counts the corrections that were left out, each of a single weight
	// tensor in one step.
	Uncorrected int `json:"uncorrected,omitempty"`
}

// Entries of a checkpoint's metadata that those of all runs have.
const (
	identityKey = "run"
	ProgressKey = "progress"
	BuildKey    = "build"
)

// Metadata is that of a checkpoint of a run with this identity, which has come so far.
func Metadata(identity string, done Progress, build engine.BuildInfo) (checkpoint.Meta, error) {
	m := checkpoint.Meta{}
	return m, errors.Join(m.Set(identityKey, identity), m.Set(ProgressKey, done), m.Set(BuildKey, build))
}
