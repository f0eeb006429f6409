package trained

import (
	"context"
	"os"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/method/cage"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// Held is a run that trains no step: its state is a model as it is.
type Held struct {
	Config *config.Config
	Method cage.Settings // with which the model was trained
	Record *Record
	Params []architecture.Param
	// Values reads a parameter, when it is written.
	Values func(param string) ([]float32, error)
	// Ready are the tensors of parameters that are not read with Values.
	Ready map[string][]safetensors.Tensor
	From  string // directory of the model, which may have files of a tokenizer
}

// Write writes the run into a directory, which is named train.out once it is complete. run.toml, which makes it a run
// directory, comes last.
func (h *Held) Write(ctx context.Context, to rundir.Dir) error {
	text, err := h.Config.Encode()
	if err != nil {
		return err
	}
	h.Record.Run = provenance.NewIdentity()
	if err := h.save(ctx, to); err != nil {
		return err
	}
	if err := rundir.CopyFiles(to, vfs.At(h.From), tokenizer.Files); err != nil {
		return err
	}
	if h.Record.Directory == "" {
		if h.Record.Directory, err = os.Getwd(); err != nil {
			return err
		}
	}
	if err := atomicfile.WriteJSON(to.Provenance(), h.Record); err != nil {
		return err
	}
	out := rundir.At(h.Config.Train.Out)
	summary := metrics.Summary{Name: out.Base(), Completed: true, Dir: out.Name, Method: h.Method.Name, Form: string(h.Method.Form),
		Parameters: int64(architecture.CountParams(h.Params, nil)), NonEmbedding: int64(architecture.NonEmbedding(h.Params))}
	if err := metrics.WriteSummary(to.Summary(), summary); err != nil {
		return err
	}
	return atomicfile.WriteBytes(to.Config(), text)
}

// save writes the checkpoint.
func (h *Held) save(ctx context.Context, to rundir.Dir) error {
	meta, err := provenance.Metadata(h.Record.Run, provenance.Progress{}, h.Record.Build)
	if err != nil {
		return err
	}
	state := checkpoint.State{Meta: meta}
	for _, p := range h.Params {
		if ready := h.Ready[p.Name]; ready != nil {
			state.Tensors = append(state.Tensors, ready...)
			continue
		}
		read := func() ([]float32, error) { return h.Values(p.Name) }
		state.Tensors = append(state.Tensors, safetensors.Lazy(step.ParamName(p.Name), p.Dims, read))
	}
	_, err = checkpoint.Save(ctx, to.Checkpoints(), state)
	return err
}
