package provenance

import (
	"fmt"
	"path/filepath"

	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
)

// Origin describes the run or checkpoint from which weights were read.
type Origin struct {
	Path string `json:"path"`           // absolute
	Run  string `json:"run,omitempty"`  // identity of the run; empty for a Hugging Face checkpoint
	Step int    `json:"step,omitempty"` // optimizer steps completed in the run
	// Files lists the files read. The digest of a run's checkpoint is the one stored in it.
	Files []huggingface.Part `json:"files"`
	// End lists the EOS tokens declared by the Hugging Face checkpoint from which the weights
	// originally come.
	End []int32 `json:"end,omitempty"`
	// Stored tells of each type in few bits how many matrices of the original had it, and which
	// quantizer of weights has the same grid, if one has.
	Stored []string `json:"stored,omitempty"`
}

// Ends returns the EOS tokens; nil if they are unknown, or if weights were randomly initialized.
func (o *Origin) Ends() []int32 {
	if o == nil {
		return nil
	}
	return o.End
}

// Digests returns the SHA-256 hashes of the files from which weights were read.
func (o *Origin) Digests() []string {
	return lists.Map(o.Files, func(f huggingface.Part) string { return f.SHA256 })
}

// String returns the path and, if it is a run, the step.
func (o *Origin) String() string {
	if o.Run != "" {
		return fmt.Sprintf("%s, step %d", o.Path, o.Step)
	}
	return o.Path
}

// LoadRun calls use with the weights of the newest checkpoint of a run, and returns their origin.
func LoadRun(dir rundir.Dir, use func(step.LoadFunc) error) (*Origin, error) {
	made, err := Read(dir)
	if err != nil {
		return nil, err
	}
	from := &Origin{Run: made.Run, End: made.Initial.Ends()}
	if from.Path, err = filepath.Abs(dir.Name); err != nil {
		return nil, err
	}
	err = checkpoint.Use(dir.Checkpoints(), 0, func(f *checkpoint.File) error {
		if err := made.CheckOwner(dir, f.Step, f.Meta); err != nil {
			return err
		}
		from.Step = f.Step
		file := filepath.Join(dir.Checkpoints().Base(), checkpoint.FileName(f.Step))
		from.Files = []huggingface.Part{{File: file, SHA256: f.Digest()}}
		return UseWeights(dir, made, f, use)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if made.Initial != nil && from.Step == 0 {
		from.Stored = made.Initial.Stored
	}
	return from, nil
}

// HubOrigin returns the origin of weights from a Hugging Face checkpoint that has been read.
func HubOrigin(dir vfs.Path, c *huggingface.Checkpoint) (*Origin, error) {
	path, err := filepath.Abs(dir.Name)
	if err != nil {
		return nil, err
	}
	files, err := c.Parts()
	return &Origin{Path: path, Files: files, End: c.Config.Tokens.End, Stored: c.Stored}, err
}
